"""The BERT example learns on two processes: its loss falls.

    python3 bert_test.py GANNET BERT
"""
import re
import subprocess
import sys

GANNET, BERT = sys.argv[1:3]
done = subprocess.run([GANNET, "run", "--num_procs", "2", BERT, "100"], capture_output=True, text=True, timeout=280)
losses = [float(loss) for loss in re.findall(r"step \d+: loss ([0-9.]+)", done.stdout)]
if done.returncode != 0 or len(losses) != 2 or "filled: " not in done.stdout:
    sys.exit(f"FAILED: exit code {done.returncode}\n{done.stdout}{done.stderr}")
if not losses[1] < 0.9 * losses[0]:
    sys.exit(f"FAILED: the loss does not fall from steps 1-50 to 51-100: {losses}")
