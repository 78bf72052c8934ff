"""Hosts that are namespaces of this machine (box.sh), and runs of a GPT-2 on them: what the tests of several machines share.

    python3 TEST.py GANNET GPT2

Ends with 77, and a sentence, where namespaces are not allowed or a package is missing.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
GANNET, GPT2 = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
INSIDE = "GANNET_CLUSTER_TEST_INSIDE"
MOST = 30  # seconds for one run


def fail(message):
    sys.exit(f"FAILED: {message}")


def skip(message):
    print(f"skipped: {message}", flush=True)
    sys.exit(77)


def enter_namespaces():
    """Runs this program again in a process namespace of its own: when it ends, however it ends, so does all that it started."""
    missing = [tool for tool in ("unshare", "nsenter", "ip", "srun", "slurmctld", "munged", "mpirun.openmpi", "mpirun.mpich") if not shutil.which(tool, path="/usr/sbin:/usr/bin:/sbin:/bin")]
    if missing:
        skip(f"{', '.join(missing)} are not installed: scripts/setup.sh --tests")
    probe = subprocess.run(["unshare", "--pid", "--net", "--uts", "--mount", "--fork", "--mount-proc", "true"], capture_output=True, text=True)
    if probe.returncode != 0:
        skip(f"this machine allows no namespaces: {probe.stderr.strip()}")
    os.environ[INSIDE] = "1"
    os.execvp("unshare", ["unshare", "--pid", "--mount", "--fork", "--mount-proc", "--kill-child", sys.executable, *sys.argv])


class Box:
    def __init__(self, folder, also=()):
        """`also`: further files that all hosts are to see, wherever they lie."""
        self.folder, self.started = folder, 0
        shared = {str(pathlib.Path(*path.resolve().parts[:3])) for path in (GANNET, GPT2, HERE, folder, *map(pathlib.Path, also)) if path.resolve().parts[1] == "tmp"}
        self.environment = {**{name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "SLURM_"))}, "LD_PRELOAD": "",
                            "GANNET_BOX": str(folder / "box"), "GANNET_BOX_SHARE": " ".join(sorted(shared))}

    def call(self, *words):
        done = subprocess.run([str(HERE / "box.sh"), *words], env=self.environment, capture_output=True, text=True, timeout=MOST)
        if done.returncode != 0:
            fail(f"box.sh {' '.join(words)}: {done.stdout}{done.stderr}")

    def start(self, host, *words, folder=None, **variables):
        """A process on a host, whose output is in the file .output."""
        exports = [f"{name}={value}" for name, value in variables.items()]
        self.started += 1
        output = self.folder / f"output{self.started}"
        with open(output, "w") as file:
            process = subprocess.Popen([str(HERE / "box.sh"), "on", host, "env", *exports, *map(str, words)], env=self.environment, cwd=folder or self.folder,
                                       stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)
        process.output = output
        return process

    def processes(self, word):
        """Process numbers, as this namespace sees them, of programs whose command line has the word."""
        found = []
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if word in (entry / "cmdline").read_bytes().split(b"\0")[0].decode():
                    found.append(int(entry.name))
            except OSError:
                pass
        return found

    def processes_on(self, host, word):
        name = os.readlink(f"/proc/{(self.folder / 'box/pid' / host).read_text().strip()}/ns/net")
        return [pid for pid in self.processes(word) if os.readlink(f"/proc/{pid}/ns/net") == name]

    def expect_nothing_left(self, words, most=15):
        """Nothing of a run is left on any host."""
        end = time.monotonic() + most
        while left := [pid for word in words for pid in self.processes(word)]:
            if time.monotonic() > end:
                fail(f"{most} s after the end of a run there are still {[pathlib.Path(f'/proc/{pid}/cmdline').read_bytes() for pid in left]}")
            time.sleep(0.1)


def wait_for_step(metrics, step):
    end = time.monotonic() + MOST
    while time.monotonic() < end:
        if metrics.exists() and len(metrics.read_text().splitlines()) >= step:
            return
        time.sleep(0.05)
    fail(f"{metrics} has not {step} steps")


def losses_in(metrics):
    """By step; steps after the checkpoint of a restart come twice."""
    return {line["step"]: line["loss"] for line in map(json.loads, metrics.read_text().splitlines())}


def finish(processes, most=MOST):
    """Waits for processes, and returns their outputs."""
    end = time.monotonic() + most
    for process in processes:
        try:
            process.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            fail(f"{' '.join(process.args)} has not ended in {most} s:\n" + "\n".join(one.output.read_text() for one in processes))
    return [process.output.read_text() for process in processes]


class Cluster:
    def __init__(self, box, folder):
        self.box, self.folder = box, folder
        self.config = folder / "ds_config.json"
        self.config.write_text(json.dumps({"train_batch_size": 4, "gradient_clipping": 1.0, "zero_optimization": {"stage": 2},
                                           "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}}, "accelerator": {"type": "cpu"}}))
        self.number = 0

    def program(self, steps=3, *more):
        return [GPT2, "--layers", 1, "--width", 32, "--heads", 2, "--seq-len", 32, "--generate", 0, "--threads", 1, "--steps", steps, "--deepspeed_config", self.config, *more]

    def train(self, start):
        """The bytes of the weights that a run ends with. `start(program)` gives its processes."""
        self.number += 1
        model = self.folder / f"model{self.number}"
        processes = start(self.program(3, "--save-model", model))
        outputs = finish(processes)
        if any(process.returncode != 0 for process in processes):
            fail(f"{[process.returncode for process in processes]}: {''.join(outputs)}")
        return (model / "model.safetensors").read_bytes(), "".join(outputs)
