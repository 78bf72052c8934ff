#!/usr/bin/env bash
# open_page.sh GANNET [STEPS]: prints how long `gannet report` takes for a run of so many steps (100,000), and how long a headless
# Chromium then takes until the page's charts are drawn. A measurement, not a test: it depends on the machine and its load.
set -euo pipefail
gannet=$1 steps=${2:-100000}
browser=$(command -v chromium-headless-shell || command -v chromium || command -v chromium-browser || command -v google-chrome)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 "$(dirname "$0")/sample_metrics.py" "$folder/metrics.jsonl" "$steps"
TIMEFORMAT=%R
seconds=$({ time "$gannet" report "$folder/metrics.jsonl" -o "$folder/report.html" > /dev/null; } 2>&1)
echo "$steps steps, $(($(stat -c %s "$folder/metrics.jsonl") >> 20)) MiB of metrics: the report in $seconds s, $(($(stat -c %s "$folder/report.html") >> 10)) KiB"
# Behind the page's own script: its charts are drawn, and the layout is made.
echo '<p id="opened"></p><script>document.body.getBoundingClientRect(); document.getElementById("opened").textContent = (performance.now() / 1000).toFixed(2);</script>' >> "$folder/report.html"
for _ in 1 2 3; do
  "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$folder/profile" --window-size=1250,2300 --dump-dom "file://$folder/report.html" 2> /dev/null |
    sed -n 's/.*<p id="opened">\([0-9.]*\)<.*/the page opened in \1 s/p'
done
