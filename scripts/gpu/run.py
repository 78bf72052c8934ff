"""Runs the phases of a pack on the machine that it lies on: no network, nothing is built.

    ./run.sh probe tests matrix --deadline 540          phases: probe tests matrix ranks sanitizer speed; all, where none is named
    ./run.sh tests matrix --jobs 8                      eight rows at a time; the phase `speed` always has the device to itself
    ./run.sh matrix --accelerator checked               a device made of host memory, in place of a GPU
    ./run.sh matrix --out results                       resumes an earlier run with this folder

    probe       nvidia-smi, the plugins, gannet doctor, one training
    tests       gpu_test and accelerators_test, a process for each test
    matrix      a small transformer at every stage, tier, dtype and kind of activation checkpointing, compared with the CPU's losses;
                each one twice, the second time with CUDA_LAUNCH_BLOCKING=1: other bits mean that a wait is missing
    ranks       two processes on the one device
    sanitizer   compute-sanitizer: memcheck of three trainings; memcheck, racecheck and initcheck of the optimizers' kernels
    speed       AdamW's update beside a copy on the device and at::_fused_adamw_; a step of Lamb, AdamW8bit, Adafactor and Muon

The tests of refusals are skipped where there is an NVIDIA driver: nothing is refused there.

Each row is a process with a time-out; as it ends, a line of JSON with its outcome is written to OUT/results.jsonl, and what it
printed to OUT/logs. A row that has a line there is not run again, but one that was cut off by the deadline. LibTorch is that of
LIBTORCH_ROOT, else of `python3 -c "import torch"`. Exit code 1 where a row failed, 3 where the deadline cut some off.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import rows

PACK = rows.PACK
TOLERANCES = {"fp32": 1e-5, "bf16": 2e-3, "fp16": 5e-4}  # of the largest loss: other kernels, other orders of sums and roundings


def libtorch():
    if "LIBTORCH_ROOT" in os.environ:
        return pathlib.Path(os.environ["LIBTORCH_ROOT"])
    found = subprocess.run([sys.executable, "-c", "import os, torch; print(os.path.dirname(torch.__file__))"], capture_output=True, text=True)
    if found.returncode:
        sys.exit("run: no PyTorch was found: name a LibTorch with LIBTORCH_ROOT")
    return pathlib.Path(found.stdout.strip())


def environment_of(row, torch):
    environment = dict(os.environ, **row.environment)
    folders = [str(PACK / "lib"), str(PACK / "system"), str(torch / "lib"), os.environ.get("LD_LIBRARY_PATH", "")]
    environment["LD_LIBRARY_PATH"] = ":".join(folder for folder in folders if folder)
    environment["GANNET_PLUGIN_PATH"] = str(PACK / "lib" / "gannet")
    environment["GANNET_TEST_BINARY_DIR"] = str(PACK)
    environment.setdefault("OMP_WAIT_POLICY", "passive")
    return environment


def execute(row, torch, seconds):
    """(exit code or None where it was ended, what it printed, wall seconds). Its whole process group ends with it."""
    began = time.monotonic()
    process = subprocess.Popen(row.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                               env=environment_of(row, torch), start_new_session=True)
    try:
        output, _ = process.communicate(timeout=seconds)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        code = None
    return code, output, time.monotonic() - began


def trained(output):
    for line in reversed(output.splitlines()):
        if line.startswith('{"losses"'):
            return json.loads(line)
    return None


def judge(row, code, output, expected, earlier):
    """(outcome, what is wrong)."""
    if code is None:
        return "timed out", f"no end within {row.seconds} s"
    if code != 0:
        last = [line for line in output.splitlines() if line.strip()][-1:] or [""]
        return "failed", f"exit code {code}: {last[0][:300]}"
    if re.search(r"^\[  SKIPPED \]", output, re.MULTILINE) and "[  PASSED  ] 0 tests" in output:
        return "skipped", ""
    if not row.expect:
        return "passed", ""
    here, there = trained(output), expected[row.expect]
    if not here or not there:
        return "failed", "no losses were printed" if not here else "the CPU's losses are not in the pack"
    dtype = row.expect.split(", ")[2]
    apart = max(abs(a - b) for a, b in zip(here["losses"], there["losses"]))
    if here["applied"] != there["applied"] or not apart <= TOLERANCES[dtype] * max(map(abs, there["losses"])):
        return "failed", f"losses up to {apart:.3g} from the CPU's, {here['applied']} steps applied beside {there['applied']}"
    if row.same_as in earlier and earlier[row.same_as] != here:
        return "failed", "not the bits of the first run: a wait may be missing"
    return "passed", f"{apart:.2g}"


def run(arguments, torch):
    out = pathlib.Path(arguments.out)
    (out / "logs").mkdir(parents=True, exist_ok=True)
    results = out / "results.jsonl"
    done, earlier = {}, {}
    if results.exists():
        for line in results.read_text().splitlines():
            entry = json.loads(line)
            done[entry["phase"], entry["row"]] = entry
            if entry.get("trained"):
                earlier[entry["row"]] = entry["trained"]
    expected = json.loads((PACK / "expected.json").read_text())

    def list_tests(command):
        listing = subprocess.run(command, capture_output=True, text=True, env=environment_of(rows.Row("", "", command, 60), torch))
        suite, names = "", []
        for line in listing.stdout.splitlines():
            if line and not line.startswith(" ") and line.split("#")[0].strip().endswith("."):
                suite = line.split("#")[0].strip()
            elif line.startswith("  ") and suite:
                names.append(suite + line.split("#")[0].strip())
        return names

    until = time.monotonic() + arguments.deadline
    counts = {"failed": 0, "cut off": 0}
    writing = threading.Lock()

    def run_row(row):
        left = until - time.monotonic()
        if left >= 5:
            code, output, seconds = execute(row, torch, min(row.seconds, left))
        with writing:
            if left < 5 or (code is None and left < row.seconds):  # not the row's fault: it is run again the next time
                counts["cut off"] += 1
                return
            outcome, why = judge(row, code, output, expected, earlier)
            counts["failed"] += outcome in ("failed", "timed out")
            entry = {"phase": row.phase, "row": row.name, "outcome": outcome, "why": why, "seconds": round(seconds, 2)}
            if figures := trained(output):
                entry["trained"] = figures
                earlier.setdefault(row.name, figures)
            with results.open("a") as file:
                file.write(json.dumps(entry) + "\n")
            log = re.sub(r"[^A-Za-z0-9]+", "_", f"{row.phase} {row.name}")[:150]
            (out / "logs" / f"{log}.txt").write_text(output)
            print(f"{row.phase:10} {outcome:9} {seconds:6.1f} s  {row.name}  {why}", flush=True)

    def run_chain(chain):
        for row in chain:
            run_row(row)

    for phase in arguments.phases or rows.PHASES:
        make = getattr(rows, phase)
        chains = {}  # a row that is compared with an earlier one runs behind it
        for row in make(arguments.accelerator, list_tests) if phase == "tests" else make(arguments.accelerator):
            if (row.phase, row.name) not in done:
                chains.setdefault(row.same_as or row.name, []).append(row)
        with concurrent.futures.ThreadPoolExecutor(1 if phase == "speed" else arguments.jobs) as pool:
            list(pool.map(run_chain, chains.values()))
    if counts["cut off"]:
        print(f"the deadline cut {counts['cut off']} rows off: run the same command again")
    return 1 if counts["failed"] else 3 if counts["cut off"] else 0


def expect(torch):
    """The losses of every training on this machine's CPU, into expected.json."""
    losses = {}
    for training in rows.trainings():
        row = rows.Row("", rows.row_name(training), rows.program("device_rows", "cpu", *training), 300)
        code, output, _ = execute(row, torch, row.seconds)
        if code != 0:
            sys.exit(f"run: {row.name} failed on the CPU:\n{output}")
        losses[row.name] = trained(output)
    (PACK / "expected.json").write_text(json.dumps(losses, indent=0))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("phases", nargs="*", choices=[*rows.PHASES, []], help="in this order; all where none is named")
    parser.add_argument("--deadline", type=float, default=540, help="seconds; rows that would end later are cut off (default 540)")
    parser.add_argument("--jobs", type=int, default=1, help="rows that run at the same time (default 1)")
    parser.add_argument("--accelerator", default="cuda")
    parser.add_argument("--out", default=os.environ.get("OUT", "results"))
    parser.add_argument("--expect", action="store_true", help="writes expected.json: pack.sh does")
    arguments = parser.parse_args()
    torch = libtorch()
    return expect(torch) if arguments.expect else run(arguments, torch)


if __name__ == "__main__":
    sys.exit(main())
