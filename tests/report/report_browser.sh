#!/usr/bin/env bash
# report_browser.sh GANNET [PICTURES]: makes the report of a sample run and opens it in a headless Chromium. Checks that its charts
# are drawn, zoom together, show values and print, and that a script in the data does not run. Then the page of a run with a
# validation loss, and that of two runs. With a second argument it writes pictures there: light, dark, narrow.
set -euo pipefail
gannet=$1 pictures=${2:-} here=$(cd "$(dirname "$0")" && pwd)
browser=$(command -v chromium-headless-shell || command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$browser" ] || ! command -v python3 > /dev/null; then
  echo "skipped: there is no chromium (or no python3) here"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 "$here/sample_metrics.py" "$folder/metrics.jsonl" 200
echo '{"kind": "step", "step": 201, "time": 99, "loss": 1.9, "lr": [0.0001], "seconds": 0.4, "applied": false,
  "reason": "</script><script>document.title = 1</script><img src=x onerror=\"document.title = 2\">"}' | tr -d '\n' >> "$folder/metrics.jsonl"
"$gannet" report "$folder/metrics.jsonl" -o "$folder/report.html" > /dev/null
open() { "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$folder/profile" --virtual-time-budget=2000 "${@:2}" "file://$folder/$1" 2> /dev/null; }

open report.html --dump-dom > "$folder/dom.html"
fail() { echo "$1"; exit 1; }
expect() { grep -q -- "$1" "$folder/dom.html" || fail "the page as the browser has it lacks: $1"; }
expect '<title>[^<]*metrics.jsonl</title>'           # no script of the data's has changed it
expect 'type="search"'                               # the page's own script made the search
expect '<span role="status">[0-9]* of [0-9]*</span>'  # ... and applied it
expect '<span id="now-skipped">skipped: &lt;/script&gt;&lt;script&gt;'  # the last step's, as text
if grep -q '<img' "$folder/dom.html"; then fail "a text of the data became an element"; fi

# The same page with a script that uses it as a reader would, and says what it saw.
use() {  # PAGE SCRIPT EXPECTED
  { cat "$folder/$1.html"; echo "<script>"; cat "$here/use_tools.js" "$here/$2.js"; echo "</script>"; } > "$folder/used.html"
  open used.html --window-size=1250,2300 --dump-dom > "$folder/dom.html"
  sed -n '/<pre id="seen">/,/<\/pre>/p' "$folder/dom.html" | sed '/<\/*pre/d' > "$folder/seen"
  diff -u "$here/$3.expected" "$folder/seen" || fail "the page does not do what $3.expected says"
}
use report use_page use_page

mkdir "$folder/slow" "$folder/fast"
python3 "$here/sample_metrics.py" "$folder/slow/metrics.jsonl" 200 0.3
python3 "$here/sample_metrics.py" "$folder/fast/metrics.jsonl" 160 0
"$gannet" report "$folder/slow" -o "$folder/validation.html" > /dev/null
use validation use_marks use_validation
"$gannet" report "$folder/slow" "$folder/fast/metrics.jsonl" -o "$folder/compared.html" > /dev/null
use compared use_marks use_compared

if [ -n "$pictures" ]; then
  mkdir -p "$pictures"
  for page in report validation compared; do
    open $page.html --window-size=1250,2900 --screenshot="$pictures/$page-light.png"
    open $page.html --window-size=1250,2900 --blink-settings=preferredColorScheme=0 --screenshot="$pictures/$page-dark.png"
    open $page.html --window-size=500,3600 --screenshot="$pictures/$page-narrow.png"
    open $page.html --print-to-pdf="$pictures/$page-print.pdf"
  done
fi
echo "the report works in $("$browser" --version 2> /dev/null)"
