"""One run on several machines, which are namespaces of this one (box.sh): a GPT-2 at ZeRO stage 2 whose weights are, bit by bit,
those of as many processes on one machine, whoever starts it; what happens when a process or a machine is lost, and when the
machines do not share their checkpoints' folder.

    python3 cluster_test.py GANNET GPT2

Ends with 77, and a sentence, where namespaces are not allowed or a package is missing.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
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
    def __init__(self, folder):
        self.folder, self.started = folder, 0
        shared = {str(pathlib.Path(*path.resolve().parts[:3])) for path in (GANNET, GPT2, HERE, folder) if path.resolve().parts[1] == "tmp"}
        self.environment = {**{name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "SLURM_"))}, "LD_PRELOAD": "",
                            "GANNET_BOX": str(folder / "box"), "GANNET_BOX_SHARE": " ".join(sorted(shared))}

    def call(self, *words):
        done = subprocess.run([str(HERE / "box.sh"), *words], env=self.environment, capture_output=True, text=True, timeout=MOST)
        if done.returncode != 0:
            fail(f"box.sh {' '.join(words)}: {done.stdout}{done.stderr}")

    def start(self, host, *words, **variables):
        """A process on a host, whose output is in the file .output."""
        exports = [f"{name}={value}" for name, value in variables.items()]
        self.started += 1
        output = self.folder / f"output{self.started}"
        with open(output, "w") as file:
            process = subprocess.Popen([str(HERE / "box.sh"), "on", host, "env", *exports, *map(str, words)], env=self.environment, cwd=self.folder,
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


def main():
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gannet-cluster-", dir="/var/tmp") as path:
        folder = pathlib.Path(path)
        box = Box(folder)
        box.call("up", "3")
        box.call("slurm")
        cluster = Cluster(box, folder)
        one_machine = lambda program: [box.start("gannet-a", GANNET, "run", "--num_procs", 4, *program)]
        expected, _ = cluster.train(one_machine)

        def by_hand(program):
            return [box.start(host, GANNET, "run", "--num_procs", 2, "--num_nodes", 2, "--node_rank", node, "--master_addr", "gannet-a", *program)
                    for node, host in enumerate(("gannet-a", "gannet-b"))]

        def kubeflow(program):
            return [box.start(host, GANNET, "run", *program, PET_NNODES=2, PET_NODE_RANK=node, PET_NPROC_PER_NODE=2, PET_MASTER_ADDR="gannet-a", PET_MASTER_PORT=29811)
                    for node, host in enumerate(("gannet-a", "gannet-b"))]

        hosts = folder / "hosts"
        hosts.write_text("gannet-a slots=2\ngannet-b slots=2\n")
        ways = {
            "srun PROGRAM, 4 tasks on 2 machines": lambda program: [box.start("gannet-a", "srun", "--nodes", 2, "--ntasks", 4, *program)],
            "srun PROGRAM, 4 tasks on 3 machines": lambda program: [box.start("gannet-c", "srun", "--nodes", 3, "--ntasks", 4, "--overcommit", *program)],
            "srun gannet run, one a machine": lambda program: [box.start("gannet-b", "srun", "--nodes", 2, "--ntasks-per-node", 1, GANNET, "run", "--num_procs", 2, *program)],
            "gannet run by hand": by_hand,
            "gannet run in Kubeflow's pods": kubeflow,
            "mpirun of Open MPI": lambda program: [box.start("gannet-c", "mpirun.openmpi", "--hostfile", hosts, "-np", 4, *program)],
            "mpirun of MPICH": lambda program: [box.start("gannet-c", "mpirun.mpich", "-hosts", "gannet-a:2,gannet-b:2", "-n", 4, *program)],
            "mpirun of MPICH, with an address": lambda program: [box.start("gannet-a", "mpirun.mpich", "-hosts", "gannet-b:2,gannet-a:2", "-n", 4, *program, MASTER_ADDR="gannet-b", MASTER_PORT=29810)],
            "mpirun of Open MPI, one gannet run a machine": lambda program: [box.start("gannet-a", "mpirun.openmpi", "--hostfile", hosts, "--map-by", "ppr:1:node", "-np", 2, GANNET, "run", "--num_procs", 2, *program)],
            "mpirun of MPICH, one gannet run a machine": lambda program: [box.start("gannet-a", "mpirun.mpich", "-hosts", "gannet-a:1,gannet-b:1", "-n", 2, GANNET, "run", "--num_procs", 2, *program)],
        }
        for name, start in ways.items():
            weights, output = cluster.train(start)
            if weights != expected:
                fail(f"{name}: other weights than on one machine\n{output}")
            print(f"{name}: the weights of one machine", flush=True)
        folders(box, cluster)
        unlike_nodes(box, cluster)
        faults(box, cluster)
        print(f"{time.monotonic() - began:.0f} s", flush=True)


def folders(box, cluster):
    """A checkpoint folder that each machine has for itself: /tmp of a host."""
    def save(*settings):
        program = cluster.program(1, "--save-checkpoint", "/tmp/own", *settings)
        run = box.start("gannet-a", "srun", "--nodes", 2, "--ntasks-per-node", 1, *program)
        return finish([run])[0], run.returncode

    output, code = save()
    if code != 2 or "does not see what the rank on gannet-a has just made in the checkpoint folder /tmp/own: the machines do not share it" not in output:
        fail(f"a folder that is not shared: {code}\n{output}")
    output, code = save("--set", "checkpoint.use_node_local_storage=true")
    if code != 0:
        fail(f"a folder on each machine: {code}\n{output}")
    print("a checkpoint folder that the machines do not share: refused, or one on each", flush=True)


def unlike_nodes(box, cluster):
    """Machines that were given different numbers of ranks."""
    runs = [box.start(host, GANNET, "run", "--num_procs", node + 1, "--num_nodes", 2, "--node_rank", node, "--master_addr", "gannet-a", *cluster.program())
            for node, host in enumerate(("gannet-a", "gannet-b"))]
    output = "".join(finish(runs))
    if any(run.returncode != 2 for run in runs) or "the same --num_procs and --num_nodes on every machine" not in output:
        fail(f"machines with different numbers of ranks: {[run.returncode for run in runs]}\n{output}")
    print("machines with different numbers of ranks: refused on both", flush=True)


def faults(box, cluster):
    """A rank killed on the second machine; its cable cut for good; both go on by --max-restarts."""
    saved = cluster.folder / "saved"
    undisturbed = cluster.folder / "undisturbed.jsonl"
    metrics = cluster.folder / "disturbed.jsonl"
    long_run = lambda folder, file: cluster.program(60, "--save-checkpoint", folder, "--checkpoint-every", 5, "--resume", "--metrics", file)

    def nodes(program, *options):
        return [box.start(host, GANNET, "run", "--num_procs", 1, "--num_nodes", 2, "--node_rank", node, "--master_addr", "gannet-a", *options, *program)
                for node, host in enumerate(("gannet-a", "gannet-b"))]

    def wait_for_step(file, step):
        end = time.monotonic() + MOST
        while time.monotonic() < end:
            if file.exists() and len(file.read_text().splitlines()) >= step:
                return
            time.sleep(0.05)
        fail(f"{file} has not {step} steps")

    def rank_on(host):
        name = os.readlink(f"/proc/{(box.folder / 'box/pid' / host).read_text().strip()}/ns/net")
        return [pid for pid in box.processes("bin/gpt2") if os.readlink(f"/proc/{pid}/ns/net") == name]

    finish(nodes(long_run(cluster.folder / "first", undisturbed)))
    runs = nodes(long_run(saved, metrics), "--max-restarts", 2)
    wait_for_step(metrics, 12)
    os.kill(rank_on("gannet-b")[0], 9)
    outputs = finish(runs)
    if any(process.returncode != 0 for process in runs):
        fail(f"a killed rank: {[process.returncode for process in runs]}\n{''.join(outputs)}")
    if "rank 1 (gannet-b) has died" not in outputs[0] or "rank 1 of 2 on gannet-b failed first, and is the cause: it was killed by SIGKILL" not in outputs[1]:
        fail(f"the cause of a killed rank is not told: {''.join(outputs)}")
    losses = {}
    for line in map(json.loads, metrics.read_text().splitlines()):  # steps after the checkpoint come twice
        losses[line["step"]] = line["loss"]
    expected = {line["step"]: line["loss"] for line in map(json.loads, undisturbed.read_text().splitlines())}
    if losses != expected:
        fail(f"after a restart the losses are {losses}, and those of the undisturbed run {expected}")
    print("a killed rank: both machines started again, with the losses of an undisturbed run", flush=True)

    metrics.unlink()
    runs = nodes(cluster.program(100_000, "--metrics", metrics))
    wait_for_step(metrics, 5)
    box.call("cut", "gannet-b")
    cut = time.monotonic()
    outputs = finish(runs, 30)
    if time.monotonic() - cut > 15 or any(process.returncode != 3 for process in runs):
        fail(f"a cut cable: {time.monotonic() - cut:.1f} s, {[process.returncode for process in runs]}\n{''.join(outputs)}")
    if "(gannet-b)" not in outputs[0]:
        fail(f"a cut cable: the machine is not named\n{outputs[0]}")
    if left := box.processes("bin/gpt2"):
        fail(f"a cut cable: {left} are left")
    print(f"a cut cable: both ended after {time.monotonic() - cut:.1f} s", flush=True)


if __name__ == "__main__":
    if INSIDE not in os.environ:
        enter_namespaces()
    main()
