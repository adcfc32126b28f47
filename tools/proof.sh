#!/usr/bin/env bash
# The long forms of the tests that are random: what `make test` tries for seconds, this tries for an hour. All stages run,
# whichever fail, and each says how long it took.
#
# tools/proof.sh                 every stage
# tools/proof.sh model faults    these
# CINNAMON_PROOF_CASES=1000 CINNAMON_PROOF_SEEDS=1000 tools/proof.sh    not so long
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/env.sh

wanted=" $* "
summary=()
failed=0
# Runs a stage, if it is wanted, and notes how long it took.
stage() {
    local name=$1 start=$SECONDS result=ok
    shift
    case $wanted in "  " | *" $name "*) ;; *) return ;; esac
    echo "=== $name"
    "$@" || result=FAILED
    [ "$result" = ok ] || failed=1
    summary+=("$(printf '%-8s %-6s %5d s' "$name" "$result" "$((SECONDS - start))")")
}

core_test() { cargo test --release --locked -p cinnamon-core --all-features --test "$1" -- --nocapture; }

export CINNAMON_PROOF_CASES="${CINNAMON_PROOF_CASES:-200000}" CINNAMON_PROOF_SEEDS="${CINNAMON_PROOF_SEEDS:-100000}"

# The whole controller against an obvious model, and a store in trouble of every kind at once.
stage model core_test model
stage faults core_test fault_simulation
# The same where every lane lets requests run without its engine.
stage free env CINNAMON_RUN_FREE=1 cargo test --release --locked -p cinnamon-core --all-features --test model --test fault_simulation
# The models of the lock-free parts with more preemptions, and each with the code under it broken.
stage loom env LOOM_MAX_PREEMPTIONS=5 tools/loom.sh
stage broken tools/loom.sh --broken

if [ "${#summary[@]}" -eq 0 ]; then
    echo "proof: there is no such stage:$wanted" >&2
    exit 2
fi
printf '=== %s\n' "${summary[@]}"
[ "$failed" = 0 ]
