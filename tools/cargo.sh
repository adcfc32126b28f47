#!/usr/bin/env bash
# cargo with the project's settings: tools/cargo.sh test -p cinnamon-core
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/env.sh
exec cargo "$@"
