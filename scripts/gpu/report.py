"""The tables of docs/gpu.md, "What ran", from the results of run.py: report.py results/results.jsonl"""
import collections
import json
import sys

phases = collections.defaultdict(lambda: collections.Counter())
wrong = []
seconds = collections.Counter()
for line in open(sys.argv[1]):
    entry = json.loads(line)
    phases[entry["phase"]][entry["outcome"]] += 1
    seconds[entry["phase"]] += entry["seconds"]
    if entry["outcome"] in ("failed", "timed out"):
        wrong.append(entry)

print("| phase | passed | failed | timed out | skipped | seconds |\n|---|---|---|---|---|---|")
for phase, counts in phases.items():
    print(f"| {phase} | {counts['passed']} | {counts['failed']} | {counts['timed out']} | {counts['skipped']} | {seconds[phase]:.0f} |")
if wrong:
    print("\n| phase | row | what was seen |\n|---|---|---|")
    for entry in wrong:
        print(f"| {entry['phase']} | {entry['row']} | {entry['why'].replace('|', '/')} |")
