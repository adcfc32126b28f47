#!/usr/bin/env bash
# Runs the core's tests once more, with every lane letting requests run without its engine wherever nothing has to be decided: by
# itself that begins with thousands a second, which few tests offer.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/env.sh

# What these are about: at a hundred a second everybody is timed, and just these service times, to the last one, make a limit.
export CINNAMON_RUN_FREE=1
exec cargo test --locked -p cinnamon-core --all-features --tests -- --quiet \
    --skip a_lane_runs_without_its_engine_once_thousands_come_and_no_longer_when_they_do_not \
    --skip work_that_began_under_another_limit_is_not_fresh \
    --skip bug_28_few_failures_decide_nothing_and_health_checks_are_no_samples \
    --skip bug_30_fast_failures_and_cancelled_work_move_no_limit
