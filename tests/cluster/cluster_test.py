"""One run on several machines, which are namespaces of this one (box.sh): a GPT-2 at ZeRO stage 2 whose weights are, bit by bit,
those of as many processes on one machine, whoever starts it; what happens when a process or a machine is lost, and when the
machines do not share their checkpoints' folder.

    python3 cluster_test.py GANNET GPT2
"""
import json
import os
import pathlib
import tempfile
import time

from hosts import GANNET, GPT2, INSIDE, Box, Cluster, enter_namespaces, fail, finish, losses_in, wait_for_step

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

        def at_home_a_loopback(program):  # as Debian writes /etc/hosts
            names = (folder / "box/hosts").read_text()
            (folder / "hosts_at_home").write_text("127.0.1.1 gannet-a\n" + names)
            finish([box.start("gannet-a", "mount", "--bind", folder / "hosts_at_home", "/etc/hosts")])
            processes = by_hand(program)
            finish(processes)
            finish([box.start("gannet-a", "umount", "/etc/hosts")])
            return processes

        def pods(program):  # one process in each, with the variables of Kubeflow's PyTorchJob
            return [box.start(f"gannet-{'ab'[rank % 2]}", *program, RANK=rank, WORLD_SIZE=4, MASTER_ADDR="gannet-a", MASTER_PORT=29814, PET_NNODES=4, PET_NODE_RANK=rank, PET_NPROC_PER_NODE="auto")
                    for rank in range(4)]

        hosts = folder / "hosts"
        hosts.write_text("gannet-a slots=2\ngannet-b slots=2\n")
        ways = {
            "srun PROGRAM, 4 tasks on 2 machines": lambda program: [box.start("gannet-a", "srun", "--nodes", 2, "--ntasks", 4, *program)],
            "srun PROGRAM, 4 tasks on 3 machines": lambda program: [box.start("gannet-c", "srun", "--nodes", 3, "--ntasks", 4, "--overcommit", *program)],
            "srun gannet run, one a machine": lambda program: [box.start("gannet-b", "srun", "--nodes", 2, "--ntasks-per-node", 1, GANNET, "run", "--num_procs", 2, *program)],
            "srun PROGRAM, with an address, ranks dealt out in turn": lambda program: [box.start("gannet-b", "srun", "--nodes", 2, "--ntasks", 4, "--distribution", "cyclic", *program, MASTER_ADDR="gannet-a", MASTER_PORT=29812)],
            "gannet run by hand": by_hand,
            "gannet run by hand, a name that is a loopback address at home": at_home_a_loopback,
            "pods with a process each": pods,
            "gannet run in Kubeflow's pods": kubeflow,
            "mpirun of Open MPI": lambda program: [box.start("gannet-c", "mpirun.openmpi", "--hostfile", hosts, "-np", 4, *program)],
            "mpirun of Open MPI, with an address": lambda program: [box.start("gannet-c", "mpirun.openmpi", "--hostfile", hosts, "-np", 4, "-x", "MASTER_ADDR", "-x", "MASTER_PORT", *program, MASTER_ADDR="gannet-a", MASTER_PORT=29813)],
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
        guest(box, hosts)
        folders(box, cluster)
        unlike_nodes(box, cluster)
        faults(box, cluster)
        print(f"{time.monotonic() - began:.0f} s", flush=True)


def guest(box, hosts):
    """Two of four ranks of a program that owns MPI train, one on each machine, while the others compute."""
    program = GPT2.parent / "mpi_guest"
    if not program.exists():
        print("examples/mpi_guest is not built: no MPI was found", flush=True)
        return
    run = box.start("gannet-a", "mpirun.openmpi", "--hostfile", hosts, "--map-by", "node", "-np", 4, program)
    output = finish([run])[0]
    losses = [float(line.split()[-1]) for line in output.splitlines() if line.startswith("step ")]
    if run.returncode != 0 or len(losses) != 4 or losses[-1] > 0.5 * losses[0] or "2 trainers" not in output:
        fail(f"examples/mpi_guest: {run.returncode}\n{output}")
    print("a program that owns MPI and trains with half of its ranks", flush=True)


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
    output, code = save("--set", "checkpoint.use_node_local_storage=true", "--resume")
    if code != 0 or "global_step1" not in output:
        fail(f"resuming from a folder on each machine: {code}\n{output}")
    print("a checkpoint folder that the machines do not share: refused, or one on each, which a run resumes from", flush=True)


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

    finish(nodes(long_run(cluster.folder / "first", undisturbed)))
    runs = nodes(long_run(saved, metrics), "--max-restarts", 2)
    wait_for_step(metrics, 12)
    os.kill(box.processes_on("gannet-b", "bin/gpt2")[0], 9)
    outputs = finish(runs)
    if any(process.returncode != 0 for process in runs):
        fail(f"a killed rank: {[process.returncode for process in runs]}\n{''.join(outputs)}")
    if "rank 1 (gannet-b) has died" not in outputs[0] or "rank 1 of 2 on gannet-b failed first, and is the cause: it was killed by SIGKILL" not in outputs[1]:
        fail(f"the cause of a killed rank is not told: {''.join(outputs)}")
    if losses_in(metrics) != losses_in(undisturbed):
        fail(f"after a restart the losses are {losses_in(metrics)}, and those of the undisturbed run {losses_in(undisturbed)}")
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
