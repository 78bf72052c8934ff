#!/usr/bin/env bash
# report_browser.sh GANNET [PICTURES]: makes the report of a sample run, opens it in a headless Chromium, and checks that its script
# ran and that a script in the data did not. With a second argument it writes pictures there: light, dark, narrow.
set -euo pipefail
gannet=$1 pictures=${2:-}
browser=$(command -v chromium-headless-shell || command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$browser" ] || ! command -v python3 > /dev/null; then
  echo "skipped: there is no chromium (or no python3) here"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 "$(dirname "$0")/sample_metrics.py" "$folder/metrics.jsonl" 200
echo '{"kind": "step", "step": 201, "time": 99, "loss": 1.9, "lr": [0.0001], "seconds": 0.4, "applied": false,
  "reason": "</script><script>document.title = 1</script><img src=x onerror=\"document.title = 2\">"}' | tr -d '\n' >> "$folder/metrics.jsonl"
"$gannet" report "$folder/metrics.jsonl" -o "$folder/report.html" > /dev/null
open() { "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$folder/profile" --virtual-time-budget=2000 "$@" "file://$folder/report.html" 2> /dev/null; }

open --dump-dom > "$folder/dom.html"
expect() { grep -q -- "$1" "$folder/dom.html" || { echo "the page as the browser has it lacks: $1"; exit 1; }; }
expect '<title>[^<]*metrics.jsonl</title>'           # no script of the data's has changed it
expect 'type="search"'                               # the page's own script made the search
expect '<span role="status">[0-9]* of [0-9]*</span>'  # ... and applied it
if grep -q '<img' "$folder/dom.html"; then
  echo "a text of the data became an element"
  exit 1
fi
if [ -n "$pictures" ]; then
  mkdir -p "$pictures"
  open --window-size=1250,2900 --screenshot="$pictures/light.png"
  open --window-size=1250,2900 --blink-settings=preferredColorScheme=0 --screenshot="$pictures/dark.png"
  open --window-size=500,3600 --screenshot="$pictures/narrow.png"
fi
echo "the report works in $("$browser" --version 2> /dev/null)"
