"""Four ranks of a GPT-2 on one machine with nothing set, started by srun, by mpirun of Open MPI and of MPICH, and by gannet run.

    python3 bench/launch/starters_bench.py [--build build] [--rounds 5] [--ranks 4]      # as root

The machine is a host of tests/cluster/box.sh, which has a Slurm. A figure is tokens per second of the median step, after the
first ten; no starter may be 1.2 times slower than another one. The last lines are JSON with the median of the rounds' ratios.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--ranks", type=int, default=4)
parser.add_argument("--steps", type=int, default=40)
args = parser.parse_args()

root = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path += [str(root / "bench"), str(root / "tests/cluster")]
given = sys.argv[1:]
sys.argv[1:] = [str(args.build.resolve() / "bin/gannet"), str(args.build.resolve() / "bin/gpt2")]  # as hosts.py takes them
from figures import alternate, report  # noqa: E402
from hosts import GANNET, GPT2, INSIDE, Box, enter_namespaces, fail, finish  # noqa: E402


def bench(folder):
    box = Box(folder)
    box.environment["GANNET_BOX_SLOTS"] = str(args.ranks)
    box.call("up", "1")
    box.call("slurm")
    config = folder / "ds_config.json"
    config.write_text(json.dumps({"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "zero_optimization": {"stage": 1},
                                  "steps_per_print": 1000, "accelerator": {"type": "cpu"}}))

    def tokens_per_second(name, *starter):
        metrics = folder / "metrics.jsonl"
        metrics.unlink(missing_ok=True)
        run = box.start("gannet-a", *starter, GPT2, "--layers", 4, "--width", 128, "--heads", 4, "--seq-len", 64, "--generate", 0, "--steps", args.steps,
                        "--deepspeed_config", config, "--metrics", metrics)
        output = finish([run], 300)[0]
        if run.returncode != 0:
            fail(f"{name}: {output}")
        seconds = statistics.median(json.loads(line)["seconds"] for line in metrics.read_text().splitlines()[10:])
        return args.ranks * 4 * 64 / seconds

    starters = {"gannet_run": (GANNET, "run", "--num_procs", args.ranks), "srun": ("srun", "--ntasks", args.ranks),
                "open_mpi": ("mpirun.openmpi", "--oversubscribe", "-np", args.ranks), "mpich": ("mpirun.mpich", "-n", args.ranks)}
    figures = alternate({name: lambda name=name, words=words: tokens_per_second(name, *words) for name, words in starters.items()}, args.rounds)
    for name in ("srun", "open_mpi", "mpich"):
        report("four_ranks_on_one_machine", figures, name, "gannet_run", ranks=args.ranks, cores=os.cpu_count(), bar="0.83 to 1.2")
    box.call("down")


if __name__ == "__main__":
    if INSIDE not in os.environ:
        sys.argv[1:] = given
        enter_namespaces()
    with tempfile.TemporaryDirectory(prefix="gannet-starters-", dir="/var/tmp") as path:
        bench(pathlib.Path(path))
