"""The example of a trial: the command of the docs, on one and two processes; killed, stopped and resumed bit by bit.

    python3 trial_test.py GANNET TRIAL HPARAMS
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

GANNET, TRIAL, HPARAMS = sys.argv[1:4]
SMALL = ["--hparam", "width=16", "--hparam", "layers=1"]
os.environ["OMP_NUM_THREADS"] = "1"


def fail(message):
    sys.exit(f"FAILED: {message}")


def run(words, folder, expect=0):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=200, cwd=folder)
    if done.returncode != expect:
        fail(f"exit code {done.returncode} of {words}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def files_of(folder, batches):
    files = {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob(f"batch-{batches}/rank-*.safetensors"))}
    files["trial.jsonl"] = (folder / "trial.jsonl").read_bytes()
    return files


def learns(folder):
    """`gannet run ./trial --hparam lr=1e-3`, as the docs have it."""
    (folder / "trial").symlink_to(TRIAL)
    run([GANNET, "run", "./trial", "--hparam", "lr=3e-3", *SMALL, "--max_length", 60, "--report_period", 30], folder)
    records = [json.loads(line) for line in (folder / "trial_output/trial.jsonl").read_text().splitlines()]
    losses = [record["metrics"]["loss"] for record in records if record["kind"] == "training"]
    if len(losses) != 2 or not losses[1] < 0.9 * losses[0]:
        fail(f"the loss does not fall: {records}")
    if records[-1]["kind"] != "validation" or records[-1]["metrics"]["perplexity"] >= 256:
        fail(f"no validation: {records}")
    said = run([GANNET, "run", "./trial", "--hparam", "lrr=1e-3"], folder, expect=2)
    if "did you mean 'lr'" not in said:
        fail(said)


def resumes(folder):
    command = [GANNET, "run", "--num_procs", 2, TRIAL, "--hparams", HPARAMS, *SMALL, "--max_length", 24, "--checkpoint_period", 3,
               "--validation_period", 12, "--report_period", 5, "--keep_checkpoints", 2]
    run([*command, "--output_dir", "straight"], folder)
    expected = files_of(folder / "straight", 24)
    if len(expected) != 3:
        fail(f"no checkpoint of batch 24: {list(expected)}")
    for number, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 85)):
        name = f"ended{number}"
        job = subprocess.Popen([str(word) for word in [*command, "--output_dir", name]], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        while not list((folder / name / "checkpoints/engine").glob("batch-[369]*")) and job.poll() is None:
            time.sleep(0.005)
        job.send_signal(number)
        said = job.communicate()[1]
        if job.returncode != code:
            fail(f"{number}: exit code {job.returncode}\n{said}")
        said = run([*command, "--output_dir", name], folder)
        if f"resumed {name} after batch" not in said:
            fail(f"it began again\n{said}")
        if files_of(folder / name, 24) != expected:
            fail(f"{number}: the resumed trial differs from the undisturbed one")


for case in (learns, resumes):
    with tempfile.TemporaryDirectory() as name:
        case(pathlib.Path(name))
