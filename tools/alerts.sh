#!/usr/bin/env bash
# Sees that each alert of docs/alerts.yml fires in trouble of its own and in no other, and that every panel of
# docs/grafana.json shows something: tools/alerts.sh --texts
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/env.sh

if ! command -v promtool >/dev/null; then
    echo "alerts: SKIPPED, promtool is not installed ('make setup' installs it where there is apt-get)" >&2
    exit 0
fi
promtool check rules docs/alerts.yml
exec cargo run --release --locked -p cinnamon-lab --no-default-features -- alerts "$@"
