"""Jobs of a batch system and of torchrun on several machines, which are namespaces of this one (box.sh): the scripts of
docs/cluster.md as they stand there, but for their numbers.

    python3 batch_test.py GANNET GPT2

With GANNET_TEST_TORCHRUN, the path of a torchrun, its scripts too.
"""
import os
import pathlib
import re
import tempfile
import time

from hosts import GANNET, HERE, INSIDE, Box, Cluster, enter_namespaces, fail, finish, losses_in, wait_for_step

TORCHRUN = os.environ.get("GANNET_TEST_TORCHRUN", "")
DOCUMENT = HERE.parent.parent / "docs/cluster.md"

# What users of torchrun and DeepSpeed have been shown; LAUNCHER stands for torchrun.
KNOWN_SCRIPT = """#!/bin/bash
#SBATCH --job-name=test-nodes
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=2
#SBATCH --time 20:00:00
export GPUS_PER_NODE=2
export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
export MASTER_PORT=9901
srun --jobid $SLURM_JOBID bash -c 'LAUNCHER \\
 --nproc_per_node $GPUS_PER_NODE --nnodes $SLURM_NNODES --node_rank $SLURM_PROCID \\
 --master_addr $MASTER_ADDR --master_port $MASTER_PORT PROGRAM'
"""


def document(after, marker):
    """The block of code of the document that has the marker, below the heading `after`."""
    text = DOCUMENT.read_text().split(f"\n## {after}", 1)[1]
    fenced = re.search(r"```bash\n(.*?)```", text, re.S) if marker == "```" else re.search(r"((?:^    .*\n)+)", text, re.M)
    return fenced.group(1)


def replaced(text, changes):
    for old, new in changes.items():
        if old not in text:
            fail(f"docs/cluster.md no longer has '{old}'")
        text = text.replace(old, str(new))
    return text


def submit(box, folder, name, script, wait=True):
    """An sbatch that ends with its job, or at once."""
    file = folder / f"{name}.sbatch"
    file.write_text(script)
    path = f"{GANNET.parent}:{os.environ['PATH']}"
    return box.start("gannet-a", "sbatch", *(["--wait"] if wait else []), "--output", folder / f"{name}.out", file, PATH=path)


def words(program):
    return " ".join(map(str, program))


def known_script(box, cluster, folder, expected):
    for launcher in filter(None, (f"{GANNET} run", f"{TORCHRUN} --no-python" if TORCHRUN else "")):
        def start(program):
            return [submit(box, folder, "known", KNOWN_SCRIPT.replace("LAUNCHER", launcher).replace("PROGRAM", words(program)))]
        weights, output = cluster.train(start)
        if weights != expected:
            fail(f"the batch script with {launcher}: other weights\n{output}{(folder / 'known.out').read_text()}")
        print(f"the batch script that users know, with {pathlib.Path(launcher.split()[0]).name}: the weights of one machine", flush=True)


def requeue(box, cluster, folder):
    """The job saves on SIGUSR1, ends with 85, is requeued, and resumes."""
    undisturbed, metrics = folder / "undisturbed.jsonl", folder / "requeued.jsonl"
    program = lambda file: words([*cluster.program(60, "--metrics", file), "--save-checkpoint", folder / file.stem, "--resume"])
    finish([box.start("gannet-a", GANNET, "run", "--num_procs", 4, *program(undisturbed).split())])
    script = replaced(document("Slurm", "```"), {"./train --deepspeed_config ds_config.json --save-checkpoint saved --resume": program(metrics), "--num_procs 4": "--num_procs 2", "--cpus-per-task=8": "--cpus-per-task=2"})
    job = submit(box, folder, "requeued", script, wait=False)
    number = finish([job])[0].split()[-1]
    wait_for_step(metrics, 12)
    finish([box.start("gannet-a", "scancel", "--signal", "USR1", number)])
    output, end = folder / "requeued.out", time.monotonic() + 60
    while last_step(metrics) < 60 and time.monotonic() < end:
        time.sleep(0.2)
    text = output.read_text()
    if losses_in(metrics) != losses_in(undisturbed):
        fail(f"a requeued job: step {last_step(metrics)}\n{text}")
    if "exit code 85" not in text or "loaded" not in text:
        fail(f"a requeued job was not stopped and resumed:\n{text}")
    print("a job that is stopped by SIGUSR1, queued again and resumed: the losses of an undisturbed run", flush=True)


def last_step(metrics):
    return max(losses_in(metrics), default=0)


def elastic(box, cluster, folder):
    """One of two machines is lost and returns: the same samples a step, none lost and none twice."""
    def program(file):
        return words([*cluster.program(1200, "--metrics", file), "--save-checkpoint", folder / file.stem, "--checkpoint-every", 50, "--resume",
                      "--set", "optimizer.params.lr=1e-5"])  # the weights hardly change: a loss tells which samples a step has

    undisturbed = folder / "two-machines.jsonl"
    finish([box.start("gannet-a", GANNET, "run", "--num_procs", 4, *program(undisturbed).split())], 60)
    expected = losses_in(undisturbed)
    line = " ".join(document("torchrun", "    ").replace("\\\n", " ").split())

    def run(name, lose, regain, **variables):
        metrics = folder / f"{name}.jsonl"
        changes = {"./train --deepspeed_config ds_config.json --save-checkpoint saved --checkpoint-every 500 --resume": program(metrics), "--nproc-per-node 4": "--nproc-per-node 2",
                   "host:29400": "gannet-a:29400", "torchrun ": f"{TORCHRUN} "}
        node = lambda host: box.start(host, *replaced(line, changes).split(), OMP_NUM_THREADS=1, **variables)
        a, b = node("gannet-a"), node("gannet-b")
        wait_for_step(metrics, 100)
        lose()
        lost_at = last_step(metrics)
        end = time.monotonic() + 60
        while last_step(metrics) < lost_at + 100 and time.monotonic() < end:
            time.sleep(0.1)
        alone = last_step(metrics)
        b = regain(b, node)
        output = "".join(finish([a, b], 120))
        found = losses_in(metrics)
        largest = max(abs(found[step] - expected[step]) for step in expected) if found.keys() == expected.keys() else "steps are missing"
        if a.returncode != 0 or b.returncode != 0 or alone < lost_at + 100 or not isinstance(largest, float) or largest > 1e-4:
            fail(f"torchrun 1:2, {name}: {a.returncode}, {b.returncode}, lost at {lost_at}, alone until {alone}, {largest}\n{output}")
        print(f"torchrun with one to two machines, {name}: lost at step {lost_at}, alone until {alone}, then both; losses within {largest:.1e} of those of an undisturbed run", flush=True)

    def mend(b, node):
        box.call("mend", "gannet-b")
        return b  # its torchrun starts its ranks again by itself

    def kill():
        for word in (TORCHRUN, "python", "gpt2"):
            for pid in box.processes_on("gannet-b", word):
                os.kill(pid, 9)

    run("cable-cut", lambda: box.call("cut", "gannet-b"), mend)
    run("torchrun-killed", kill, lambda b, node: node("gannet-b"), TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1)


def main():
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gannet-batch-", dir="/var/tmp") as path:
        folder = pathlib.Path(path)
        box = Box(folder, also=[TORCHRUN] if TORCHRUN else [])
        box.call("up", "2")
        box.call("slurm")
        cluster = Cluster(box, folder)
        expected, _ = cluster.train(lambda program: [box.start("gannet-a", GANNET, "run", "--num_procs", 4, *program)])
        known_script(box, cluster, folder, expected)
        requeue(box, cluster, folder)
        if TORCHRUN:
            elastic(box, cluster, folder)
        else:
            print("torchrun: not given, GANNET_TEST_TORCHRUN=PATH", flush=True)
        box.call("down")
        print(f"{time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    if INSIDE not in os.environ:
        enter_namespaces()
    main()
