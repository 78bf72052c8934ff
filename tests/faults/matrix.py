"""Every rank killed in every phase, and every rank's drive failing, under `gannet run`: by hand, since it takes minutes.

    python3 tests/faults/matrix.py [--build build] [--ranks 2 4] [--setups 2 3 3-nvme] [--faults kill io] [--jobs 2] [--only REGEX]

Each case is a job of the program of tests/faults/trains.h. It must end by itself within 10 s of the fault, with the report that names the
rank and what happened to it, and leave no process and nothing on the drive; its newest checkpoint must be the one before the fault; and
a run that goes on from it must end with the parameters of one that met nothing, bit by bit.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

root = pathlib.Path(__file__).resolve().parent.parent.parent
PHASES = ["forward", "backward", "reduce", "update", "step", "save", "load"]
# Of faulty_io.cpp: the call, its errno or that it kills, where it begins, setups in which that phase makes this call.
DRIVE_FAULTS = [("aio_read EIO 1", "forward", ["3-nvme"]), ("aio_read EIO 1", "backward", ["3-nvme"]), ("aio_read EIO 1", "update", ["2-nvme", "3-nvme"]),
                ("aio_write ENOSPC 1", "update", ["2-nvme", "3-nvme"]), ("aio_write EIO 1", "update", ["2-nvme", "3-nvme"]),
                ("aio_read EIO 1", "save", ["2-nvme", "3-nvme"]), ("pwrite ENOSPC 1", "save", None), ("pwrite EIO 1", "save", None),
                ("fsync EIO 1", "save", None),
                ("aio_write kill 2", "update", ["2-nvme", "3-nvme"]), ("aio_read kill 2", "update", ["2-nvme", "3-nvme"]), ("pwrite kill 1", "save", None)]
REASON = {"EIO": "Input/output error", "ENOSPC": "No space left on device"}


class Failure(Exception):
    pass


def check(holds, what, said):
    if not holds:
        raise Failure(f"{what}\n{said}")


def processes_of(mark):
    """Processes that have this in their environment."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and mark.encode() in (folder / "environ").read_bytes():
                found.append(folder.name)
        except OSError:  # gone, or not ours
            pass
    return found


class Job:
    def __init__(self, args, folder, setup, ranks):
        self.args, self.folder, self.ranks = args, folder, ranks
        stage, _, tier = setup.partition("-")
        self.mark = f"GANNET_FAULT_JOB={folder}"
        self.environment = {**os.environ, "GANNET_FAULT_JOB": str(folder), "GANNET_TEST_RANK_BODY": "trains", "STAGE": stage, "TIER": tier, "DRIVE": str(folder / "drive"),
                            "FOLDER": str(folder / "run"), "SAVES": "1", "WIDTH": "3000", "DEADLINE": "30"}
        (folder / "drive").mkdir()

    def run(self, **variables):
        command = [self.args.build / "bin/gannet", "run", "--num_procs", self.ranks, "--", self.args.build / "tests/test_faults"]
        done = subprocess.run([str(word) for word in command], env={**self.environment, **variables}, capture_output=True, text=True, timeout=200)
        return done.returncode, done.stdout + done.stderr

    def parameters(self, **variables):
        code, said = self.run(**variables)
        found = re.search(r"parameters (\d+)", said)
        check(code == 0 and found, f"exit code {code} of a run without a fault ({variables})", said)
        return found.group(1)


def play(args, fault, where, setup, ranks, victim, expected):
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        job = Job(args, pathlib.Path(name), setup, ranks)
        variables = {"WHERE": where, "VICTIM": str(victim), "FAULT": fault}
        if fault not in ("kill", "stop"):
            variables.update(FAULT="io", LD_PRELOAD=str(args.build / "tests/libfaulty_io.so"), GANNET_FAULT=fault, GANNET_FAULT_LATER="1",
                             GANNET_FAULT_RANK=str(victim), GANNET_FAULT_PATH=f"{name}/{'drive' if 'aio' in fault else 'run'}")
        code, said = job.run(**variables)
        ended = time.monotonic()
        check(code != 0, "it ended well", said)
        left = processes_of(job.mark)
        check(not left, f"processes {left} are left", said)
        moment = float((pathlib.Path(name) / "run.moment").read_text())  # of the steady clock
        check(ended - moment < 10, f"it ended {ended - moment:.1f} s after the fault", said)
        if "kill" in fault:
            check(f"rank {victim} of {ranks} failed first, and is the cause: it was killed by SIGKILL" in said, "the dead rank is not named", said)
        else:
            check("Error(input/output): " in said and REASON[fault.split()[1]] in said, "the reason is not told", said)
            check(where == "save" or f"rank {victim} of {ranks} failed first, and is the cause: it ended with exit code 3" in said, "the rank is not named", said)
        newest = (pathlib.Path(name) / "run/latest").read_text().split()[0]
        check(newest == ("global_step3" if where == "load" else "global_step2"), f"the newest checkpoint is {newest}", said)
        resumed = job.parameters(RESUME="1")
        # Killed jobs leave an empty folder that the next one removes.
        check(not os.listdir(f"{name}/drive"), "something is left on the drive", said)
        check(resumed == expected, "going on from the checkpoint gave other parameters", said)
        return ended - moment


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=root / "build")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--setups", nargs="+", default=["2", "3", "2-nvme", "3-nvme"], help="stage, or stage-tier")
    parser.add_argument("--faults", nargs="+", choices=["kill", "io"], default=["kill", "io"])
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time")
    parser.add_argument("--only", default="", help="a regular expression of case names")
    parser.add_argument("--folder", default=os.getcwd(), help="where checkpoints and the drive's files go")
    args = parser.parse_args()
    cases = []
    for ranks in args.ranks:
        for setup in args.setups:
            if "kill" in args.faults:
                cases += [("kill", where, setup, ranks, victim) for where in PHASES for victim in range(ranks)]
            if "io" in args.faults:
                cases += [(fault, where, setup, ranks, victim) for fault, where, setups in DRIVE_FAULTS for victim in (0, ranks - 1) if setups is None or setup in setups]
    name_of = lambda case: "{0} in {1}, stage {2}, rank {4} of {3}".format(*case)
    cases = [case for case in cases if re.search(args.only, name_of(case))]
    expected = {}
    for key in sorted({(case[2], case[3]) for case in cases}):
        with tempfile.TemporaryDirectory(dir=args.folder) as name:
            expected[key] = Job(args, pathlib.Path(name), *key).parameters()
    failed, slowest, began = 0, 0.0, time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        futures = {pool.submit(play, args, *case, expected[case[2], case[3]]): case for case in cases}
        for future in concurrent.futures.as_completed(futures):
            try:
                seconds = future.result()
                slowest = max(slowest, seconds)
                print(f"ok      {name_of(futures[future])}: ended {seconds:.1f} s after it", flush=True)
            except (Failure, subprocess.TimeoutExpired, OSError) as problem:
                failed += 1
                print(f"FAILED  {name_of(futures[future])}: {problem}", flush=True)
    print(f"{len(cases)} cases, {failed} failed; the job ended at most {slowest:.1f} s after its fault; {time.monotonic() - began:.0f} s")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
