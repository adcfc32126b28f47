#!/usr/bin/env bash
# Draws the book's pictures anew, docs/src/img/*.svg: out of the report of `lab sim`, seed 1.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/env.sh

# Scenario, service, arm, picture in the report, file.
pictures='
phases 1000rps cinnamon load phases-load
phases 1000rps cinnamon threshold phases-threshold
phases 1000rps cinnamon success phases-success
phases 1000rps codel success phases-success-codel
phases 1000rps auto-half threshold phases-auto-threshold
phases 1000rps auto-half limit phases-auto-limit
lag 1000rps cinnamon pressure lag-pressure
lag 1000rps cinnamon threshold lag-threshold
'

report=$(mktemp)
trap 'rm -f "$report"' EXIT
cargo run --release --locked -p cinnamon-lab --no-default-features -- \
    sim phases lag --arm cinnamon --arm codel --arm auto-half --seeds 1 --report "$report" >/dev/null || true
mkdir -p docs/src/img
echo "$pictures" | while read -r scenario service arm picture file; do
    [ -n "$file" ] || continue
    # One piece of the page a line; the picture is the one under its scenario's and its arm's headings. It gets a paper
    # of its own, for its ink is dark and some themes of the book are too.
    awk '
        { gsub(/<section class=scenario|<article>|<figure class=/, "\n&"); print }
    ' "$report" | awk -v scenario="<h2>$scenario · $service</h2>" -v arm="<h3>$arm</h3>" -v picture="<figure class=$picture>" '
        /^<section class=scenario/ { here = index($0, scenario) > 0 }
        /^<article>/ { mine = here && index($0, arm) > 0 }
        mine && index($0, picture) == 1 {
            drawing = 1
            sub(/.*<svg /, "<svg font-family=\"sans-serif\" ")
            sub(/>/, "><rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>")
        }
        drawing && sub(/<\/svg>.*/, "</svg>") { print; drawing = 0 }
        drawing { print }
    ' >"docs/src/img/$file.svg"
    [ -s "docs/src/img/$file.svg" ] || { echo "no such picture: $scenario $service $arm $picture" >&2; exit 1; }
done
ls -l docs/src/img
