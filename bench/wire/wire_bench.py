"""What a training step sends, by the network interfaces' own counters, beside ZeRO's formulas.

    python3 bench/wire/wire_bench.py [--build build] [--ranks 2 4] [--stages 0 1 2 3] [--dtype bf16] [--steps 2 6]      # as root

Each rank has a network namespace of its own, as if it were a machine, joined to the others by veth pairs and a bridge in one more. A
run of few steps is subtracted from one of more, so that what start and end send is not counted. What is left holds the frames' headers,
acknowledgements and the control plane's messages too. One GPT-2 on the CPU, everything gathered whenever it is used.

    stages 0 to 2    2 P (N-1)/N elements a step and rank
    stage 3          3 P (N-1)/N

The exit code is 77 where namespaces cannot be made, 1 where a figure is more than --bar (0.03) from its formula.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parent.parent.parent
BYTES = {"bf16": 2, "fp32": 4}


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def ip(*words, check=True):
    return subprocess.run(["ip", *map(str, words)], check=check, capture_output=True, text=True)


class Network:
    """`ranks` namespaces on one bridge."""

    def __init__(self, ranks):
        self.ranks, self.prefix = ranks, f"gannet{os.getpid()}"

    def name(self, rank):
        return f"{self.prefix}-{rank}"

    def address(self, rank):
        return f"10.213.7.{rank + 1}"

    def __enter__(self):
        try:
            self.make()
        except subprocess.CalledProcessError as error:
            self.__exit__()
            skip(f"no network namespaces here: `{' '.join(error.cmd)}` says: {error.stderr.strip()}")
        return self

    def make(self):
        hub = self.name("hub")
        ip("netns", "add", hub)
        ip("-n", hub, "link", "add", "bridge", "type", "bridge")
        ip("-n", hub, "link", "set", "bridge", "up")
        for rank in range(self.ranks):
            space = self.name(rank)
            ip("netns", "add", space)
            ip("-n", hub, "link", "add", f"port{rank}", "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("-n", hub, "link", "set", f"port{rank}", "master", "bridge", "up")
            ip("-n", space, "address", "add", f"{self.address(rank)}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")

    def __exit__(self, *_):
        for name in ["hub", *range(self.ranks)]:
            ip("netns", "delete", self.name(name), check=False)

    def sent(self, rank):
        counter = "/sys/class/net/eth0/statistics/tx_bytes"
        return int(ip("netns", "exec", self.name(rank), "cat", counter).stdout)

    def run(self, command, timeout=600):
        """Bytes that each rank's interface sent meanwhile."""
        before = [self.sent(rank) for rank in range(self.ranks)]
        processes = []
        for rank in range(self.ranks):
            environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(self.ranks), "LOCAL_RANK": "0", "OMP_NUM_THREADS": "1",
                           "MASTER_ADDR": self.address(0), "MASTER_PORT": "29500"}
            processes.append(subprocess.Popen(["ip", "netns", "exec", self.name(rank), *map(str, command)], env=environment,
                                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        try:
            said = [process.communicate(timeout=timeout)[0] for process in processes]
        finally:
            for process in processes:
                process.kill()
        for process, text in zip(processes, said):
            if process.returncode != 0:
                sys.exit(f"FAILED: a rank ended with {process.returncode}:\n{text}")
        return [self.sent(rank) - earlier for rank, earlier in enumerate(before)]


def parameters_of(gpt2, arguments, folder):
    """As the program counts them."""
    done = subprocess.run([str(word) for word in [gpt2, *arguments, "--steps", 0]], check=True, capture_output=True, text=True, cwd=folder)
    line = next(line for line in done.stdout.splitlines() if " parameters, " in line)
    return int(line.split()[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=root / "build")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--stages", type=int, nargs="+", default=[0, 1, 2, 3])
    parser.add_argument("--dtype", choices=BYTES, default="bf16")
    parser.add_argument("--steps", type=int, nargs=2, default=[2, 6])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--bar", type=float, default=0.03)
    args = parser.parse_args()
    if os.geteuid() != 0:
        skip("only root makes network namespaces")
    if not shutil.which("ip"):
        skip("there is no `ip` here (Debian's iproute2)")

    few, many = args.steps
    is_off = False
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "ds_config.json"
        arguments = ["--layers", args.layers, "--width", args.width, "--heads", 4, "--seq-len", 16, "--positions", 16, "--generate", 0, "--threads", 1,
                     "--validation-fraction", 0, "--deepspeed_config", config]
        for stage in args.stages:
            settings = {"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "accelerator": {"type": "cpu"},
                        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0, "stage3_max_reuse_distance": 0}}
            if args.dtype != "fp32":
                settings[args.dtype] = {"enabled": True}
            config.write_text(json.dumps(settings))
            parameters = parameters_of(args.build / "bin/gpt2", arguments, folder)
            for ranks in args.ranks:
                with Network(ranks) as network:
                    command = [args.build / "bin/gpt2", *arguments, "--steps"]
                    sent = {steps: network.run([*command, steps]) for steps in (few, many)}
                formula = (3 if stage == 3 else 2) * parameters * BYTES[args.dtype] * (ranks - 1) / ranks
                per_step = [(b - a) / (many - few) for a, b in zip(sent[few], sent[many])]
                ratios = [one / formula for one in per_step]
                is_off = is_off or any(abs(ratio - 1) > args.bar for ratio in ratios)
                print(json.dumps({"figure": "wire_bytes", "stage": stage, "ranks": ranks, "dtype": args.dtype, "parameters": parameters,
                                  "formula_mb": round(formula / 1e6, 3), "sent_mb": [round(one / 1e6, 3) for one in per_step], "bar": args.bar,
                                  "ratios": [round(ratio, 4) for ratio in ratios]}), flush=True)
    sys.exit(1 if is_off else 0)


if __name__ == "__main__":
    main()
