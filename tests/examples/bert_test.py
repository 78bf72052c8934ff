"""The BERT example learns: after a few steps it fills gaps better than the frequencies of the words do.

    python3 bert_test.py GANNET BERT
"""
import re
import subprocess
import sys

GANNET, BERT = sys.argv[1:3]
done = subprocess.run([GANNET, "run", "--num_procs", "2", BERT, "300"], capture_output=True, text=True, timeout=280)
found = re.search(r"has not seen: ([0-9.]+) \(by the words' frequencies alone: ([0-9.]+)\)", done.stdout)
if done.returncode != 0 or not found:
    sys.exit(f"FAILED: exit code {done.returncode}\n{done.stdout}{done.stderr}")
loss, frequencies = (float(number) for number in found.groups())
if not loss < frequencies - 0.3:
    sys.exit(f"FAILED: the loss {loss} is not well below that of the frequencies, {frequencies}\n{done.stdout}")
