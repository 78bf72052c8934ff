"""Figures that are whole commands: starting, compiling, and training beside DeepSpeed. Each alternates ours and the other's.

    python3 bench/figures.py start   [--build build-bench] [--rounds 15]
    python3 bench/figures.py plugins [--build build-bench] [--rounds 7]
    python3 bench/figures.py compile [--build build-bench] [--rounds 7]
    python3 bench/figures.py peer --peer FOLDER --peer-python VENV/bin/python --work DIR [--tokens 256] [--zero 0|2|3|2-cpu|3-cpu|3-nvme] [--rounds 7]

    python3 bench/figures.py limit --work DIR [--rounds 1] [--steps 3]      # as root
    python3 bench/figures.py ladder --work DIR --rung plain|offload|recompute|drive --micro-batch B [--steps 2] [--estimate]      # as root

Every round is printed; the last line of a figure is JSON with the median of the rounds' ratios last.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

root = pathlib.Path(__file__).resolve().parent.parent


def timed(command, **options):
    began = time.perf_counter()
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL, **options)
    return time.perf_counter() - began


def alternate(contenders, rounds, warms_up=True):
    """{name: callable returning a figure} -> {name: [figures]}; a round before the first one warms up and does not count."""
    figures = {name: [] for name in contenders}
    for index in range(0 if warms_up else 1, rounds + 1):
        values = {name: run() for name, run in contenders.items()}
        print("warm-up" if index == 0 else f"round {index}", *(f"{name} {value:.4f}" for name, value in values.items()), flush=True)
        if index:
            for name, value in values.items():
                figures[name].append(value)
    return figures


def report(figure, figures, ours, theirs, **extra):
    ratios = [a / b for a, b in zip(figures[ours], figures[theirs])]
    print(json.dumps({"figure": figure, ours: round(statistics.median(figures[ours]), 4), theirs: round(statistics.median(figures[theirs]), 4),
                      "rounds": len(ratios), **extra, "ratio": round(statistics.median(ratios), 4)}), flush=True)


def start(args):
    bench = args.build / "bench"
    figures = alternate({"first_step_s": lambda: timed([bench / "first_step"]), "bare_start_s": lambda: timed([bench / "bare_start"])}, args.rounds)
    report("start_to_first_step", figures, "first_step_s", "bare_start_s", bar=1.2)


def plugins(args):
    rounds = []
    for index in range(args.rounds + 1):
        rounds.append(json.loads(subprocess.run([args.build / "bench/open_plugins"], check=True, capture_output=True, text=True).stdout))
        print("warm-up" if index == 0 else f"round {index}", json.dumps(rounds[-1]), flush=True)
    medians = {name: round(statistics.median(one[name] for one in rounds[1:]), 3) for name in rounds[0]}
    slowest = max((name for name in medians if name != "search"), key=medians.get)
    print(json.dumps({"figure": "plugin_open", "rounds": args.rounds, "search_ms": medians["search"], "slowest": slowest, "bar_ms": 3,
                      "slowest_ms": medians[slowest]}))


def compile_(args):
    libtorch = subprocess.run([root / "scripts/setup.sh", "--print"], check=True, capture_output=True, text=True).stdout.strip()
    flags = ["-std=c++20", "-O2", "-fPIC", f"-I{root}/core/include", f"-I{root}/sdk/include", f"-isystem{libtorch}/include",
             f"-isystem{libtorch}/include/torch/csrc/api/include", "-c", "-o", "/dev/null"]
    with tempfile.TemporaryDirectory() as folder:
        texts = {"torch": "#include <torch/torch.h>\n", "both": "#include <torch/torch.h>\n#include <gannet/gannet.h>\n", "gannet": "#include <gannet/gannet.h>\n"}
        files = {}
        for name, text in texts.items():
            files[name] = pathlib.Path(folder) / f"{name}.cpp"
            files[name].write_text(text)
        figures = alternate({f"{name}_s": (lambda file=file: timed(["g++", file, *flags])) for name, file in files.items()}, args.rounds)
    report("compile_added_to_torch", figures, "both_s", "torch_s", bar=1.15)
    report("compile_alone", figures, "gannet_s", "torch_s", bar=0.5)


ZERO = {"0": {"stage": 0}, "2": {"stage": 2}, "3": {"stage": 3}, "2-cpu": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
        "3-cpu": {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}},
        "3-nvme": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "WORK"}, "offload_param": {"device": "nvme", "nvme_path": "WORK"}}}


def placed(value, folder):
    if isinstance(value, dict):
        return {key: placed(member, folder) for key, member in value.items()}
    return str(folder.resolve()) if value == "WORK" else value


def compute_ms(log):
    """Forward and backward of the last steps, from the line that wall_clock_breakdown gives in both programs."""
    times = [(float(f), float(b)) for f, b in re.findall(r"\| fwd: ([0-9.]+) \| bwd: ([0-9.]+)", log)]
    return statistics.median(f + b for f, b in times[2:]) if len(times) > 2 else float("nan")


def peer(args):
    """Tokens per second of training a 124M GPT-2 in bf16, from the median step of each run; peak resident memory; time outside of forward and backward."""
    args.work.mkdir(parents=True, exist_ok=True)
    model, tokens = args.work / "model-124m", args.work / "tokens16.bin"
    if not model.exists():
        subprocess.run([args.peer_python, args.peer / "make_model.py", model, "--layers", "12", "--width", "768", "--heads", "12", "--vocab", "50257", "--positions", "1024"], check=True)
    if not tokens.exists():
        tokens.write_bytes(bytes(byte for index in range(200_000) for byte in ((index * 7919) % 50257).to_bytes(2, "little")))
    length = 256
    config = {"train_micro_batch_size_per_gpu": args.tokens // length, "bf16": {"enabled": True}, "gradient_clipping": 1.0, "wall_clock_breakdown": True,
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.01}}, "zero_optimization": placed(ZERO[args.zero], args.work)}
    if "nvme" in args.zero:
        config["aio"] = {"block_size": 1048576, "queue_depth": 16, "intra_op_parallelism": 1, "single_submit": False, "overlap_events": True}
    file = args.work / f"ds-{args.zero}.json"
    file.write_text(json.dumps(config))
    seen = {}

    def tokens_per_second(command, name):
        metrics, log = args.work / f"{name}.jsonl", args.work / f"{name}-{args.zero}.log"
        with open(log, "w") as out:
            child = subprocess.Popen([str(word) for word in [*command, "--model", model, "--tokens", tokens, "--token-bytes", 2, "--seq-len", length, "--steps", args.steps,
                                                             "--deepspeed_config", file, "--metrics", metrics, "--threads", os.cpu_count()]], stdout=out, stderr=subprocess.STDOUT)
            _, status, usage = os.wait4(child.pid, 0)
        if status != 0:
            sys.exit(f"{name} failed: {log}")
        seconds = statistics.median([json.loads(line)["seconds"] for line in open(metrics)][2:])
        compute = compute_ms(log.read_text()) / 1000
        seen.setdefault(name, []).append((usage.ru_maxrss / 2**20, compute, seconds - compute))
        print(f"  {name}: {seconds:.3f} s a step, forward and backward {compute:.3f} s, the rest {seconds - compute:.3f} s, peak {usage.ru_maxrss / 2**20:.2f} GiB", flush=True)
        return args.tokens / seconds

    figures = alternate({"gannet_tokens_s": lambda: tokens_per_second([args.build / "bin/gpt2"], "gannet"),
                         "deepspeed_tokens_s": lambda: tokens_per_second([args.peer_python, args.peer / "gpt2_peer.py"], "deepspeed")}, args.rounds)
    median = lambda name, place: round(statistics.median(one[place] for one in seen[name][1:]), 3)
    report(f"deepspeed_gpt2_124m_bf16_stage_{args.zero}", figures, "gannet_tokens_s", "deepspeed_tokens_s", tokens=args.tokens,
           peak_gib=[median("gannet", 0), median("deepspeed", 0)], compute_s=[median("gannet", 1), median("deepspeed", 1)], rest_s=[median("gannet", 2), median("deepspeed", 2)])


class MemoryLimit:
    """A control group with a limit, of version 1 or 2: what is started by `run` may use no more memory."""

    def __init__(self, bytes_):
        top = pathlib.Path("/sys/fs/cgroup")
        old = (top / "memory").is_dir()
        self.folder = (top / "memory" if old else top) / f"gannet-limit-{os.getpid()}"
        self.folder.mkdir()
        (self.folder / ("memory.limit_in_bytes" if old else "memory.max")).write_text(str(bytes_))
        self.peak = self.folder / ("memory.max_usage_in_bytes" if old else "memory.peak")

    def run(self, command, log):
        with open(log, "w") as out:
            subprocess.run([str(word) for word in command], check=True, stdout=out, stderr=subprocess.STDOUT,
                           preexec_fn=lambda: (self.folder / "cgroup.procs").write_text(str(os.getpid())))

    def end(self):
        self.folder.rmdir()


def limit(args):
    """A GPT of 353M parameters in bf16: in memory, and with parameters and optimizer on a drive under a limit of 2 GiB."""
    args.work.mkdir(parents=True, exist_ok=True)
    tokens = args.work / "tokens16.bin"
    if not tokens.exists():
        tokens.write_bytes(bytes(byte for index in range(200_000) for byte in ((index * 7919) % 50257).to_bytes(2, "little")))
    # A sample at a time is what fits; each reads the parameters from the drive twice.
    config = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": args.tokens // 256, "bf16": {"enabled": True}, "gradient_clipping": 1.0,
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.01}}}
    place = {"device": "nvme", "nvme_path": str(args.work.resolve())}
    on_drive = dict(config, zero_optimization={"stage": 3, "offload_optimizer": place, "offload_param": dict(place, max_in_cpu=args.max_in_cpu), "sub_group_size": 2**21,
                                               "stage3_prefetch_bucket_size": 2**23, "stage3_max_live_parameters": 2**26, "stage3_max_reuse_distance": 2**22},
                    aio={"block_size": 2**20, "queue_depth": 16})
    group = MemoryLimit(2 * 2**30)

    def seconds(name, settings, run, *more):
        file, metrics, log = args.work / f"limit-{name}.json", args.work / f"limit-{name}.jsonl", args.work / f"limit-{name}.log"
        metrics.unlink(missing_ok=True)
        file.write_text(json.dumps(settings))
        run([args.build / "bin/gpt2", "--layers", 28, "--width", 1024, "--heads", 16, "--positions", 256, "--init-range", 0.02, "--tokens", tokens, "--seq-len", 256, "--steps", args.steps, "--deepspeed_config", file,
             "--metrics", metrics, "--threads", os.cpu_count(), *more], log)
        lines = [json.loads(line) for line in open(metrics)]
        return [line["loss"] for line in lines], statistics.median(line["seconds"] for line in lines[1:])

    def plainly(command, log):
        with open(log, "w") as out:
            subprocess.run([str(word) for word in command], check=True, stdout=out, stderr=subprocess.STDOUT)

    try:
        rounds = []
        for index in range(args.rounds):
            losses, in_memory = seconds("memory", config, plainly)
            limited, from_drive = seconds("drive", on_drive, group.run, "--give-memory-back")
            peak = int(group.peak.read_text()) / 2**30
            print(f"round {index + 1}: in memory {in_memory:.2f} s, from the drive {from_drive:.2f} s, peak {peak:.2f} GiB, losses {'bitwise equal' if losses == limited else f'differ: {losses} {limited}'}", flush=True)
            rounds.append(in_memory / from_drive)
        print(json.dumps({"figure": "gpt_353m_under_2_gib", "rounds": args.rounds, "tokens": args.tokens, "max_in_cpu": args.max_in_cpu, "peak_gib": round(peak, 3), "bitwise": losses == limited, "bar": 0.85, "ratio": round(statistics.median(rounds), 4)}))
    finally:
        group.end()


RUNGS = {  # of docs/memory_ladder.md: parameters, gradients and states, then activations
    "plain": {},
    "offload": {"zero": True},
    "recompute": {"zero": True, "gannet": {"activation_checkpointing": {"interval": 1}}},
    "drive": {"zero": True, "activation_checkpointing": {"cpu_checkpointing": True}, "gannet": {"activation_checkpointing": {"interval": 1, "device": "nvme"}}},
}


def ladder(args):
    """GPT-2 353M under a limit of 2 GiB: one rung of the ladder with micro-batches of a size, tokens a second, the peak, and the estimate's largest."""
    args.work.mkdir(parents=True, exist_ok=True)
    tokens = args.work / "tokens16.bin"
    if not tokens.exists():
        tokens.write_bytes(bytes(byte for index in range(200_000) for byte in ((index * 7919) % 50257).to_bytes(2, "little")))
    rung = dict(RUNGS[args.rung])
    config = {"train_micro_batch_size_per_gpu": args.micro_batch, "bf16": {"enabled": True}, "gradient_clipping": 1.0, "accelerator": {"type": "cpu"},
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.01}}}
    if rung.pop("zero", False):
        place = {"device": "nvme", "nvme_path": str(args.work.resolve())}
        config.update(zero_optimization={"stage": 3, "offload_optimizer": place, "offload_param": dict(place, max_in_cpu=0), "sub_group_size": 2**21,
                                         "stage3_prefetch_bucket_size": 2**23, "stage3_max_live_parameters": 2**26, "stage3_max_reuse_distance": 2**22},
                      aio={"block_size": 2**20, "queue_depth": 16})
    config.update(rung)
    name = f"ladder-{args.rung}-{args.micro_batch}"
    file, metrics, log = args.work / f"{name}.json", args.work / f"{name}.metrics.jsonl", args.work / f"{name}.log"
    metrics.unlink(missing_ok=True)
    config.setdefault("gannet", {})["metrics"] = {"path": str(metrics.resolve())}
    config["gannet"]["check_memory"] = False
    file.write_text(json.dumps(config))
    group = MemoryLimit(2 * 2**30)
    command = [args.build / "bin/gpt2", "--layers", 24, "--width", 1024, "--heads", 16, "--vocabulary", 50257, "--positions", 256, "--init-range", 0.02, "--tokens", tokens,
               "--token-bytes", 2, "--seq-len", 256, "--deepspeed_config", file, "--threads", os.cpu_count(), "--give-memory-back"]
    try:
        try:
            group.run([*command, "--estimate"] if args.estimate else [*command, "--steps", args.steps], log)
            fits = True
        except subprocess.CalledProcessError as error:
            fits = error.returncode
        lines = [one for one in map(json.loads, open(metrics)) if one["kind"] == "step"] if metrics.exists() else []
        seconds = min((line["seconds"] for line in lines[1:]), default=float("nan"))
        print(json.dumps({"figure": "ladder", "rung": args.rung, "micro_batch": args.micro_batch, "fits": fits, "tokens_s": round(256 * args.micro_batch / seconds, 1),
                          "seconds": [round(line["seconds"], 1) for line in lines], "peak_gib": round(int(group.peak.read_text()) / 2**30, 3), "losses": [line["loss"] for line in lines],
                          "memory_mib": {name: round(bytes_ / 2**20) for name, bytes_ in lines[-1].get("memory", {}).items()} if lines else None}), flush=True)
        if args.estimate:
            print(log.read_text())
    finally:
        group.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figure", choices=("start", "plugins", "compile", "peer", "limit", "ladder"))
    parser.add_argument("--build", type=pathlib.Path, default=root / "build-bench")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--peer", type=pathlib.Path)
    parser.add_argument("--peer-python", type=pathlib.Path)
    parser.add_argument("--work", type=pathlib.Path)
    parser.add_argument("--tokens", type=int, help="a step: 256 of peer, 2048 of limit unless given")
    parser.add_argument("--rung", choices=RUNGS, default="drive", help="of ladder")
    parser.add_argument("--micro-batch", type=int, default=1, help="samples of 256 tokens, of ladder")
    parser.add_argument("--estimate", action="store_true", help="of ladder: print what the program estimates, train nothing")
    parser.add_argument("--max-in-cpu", type=int, default=0, help="of limit: elements of the parameters that stay in memory")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--zero", choices=ZERO, default="0")
    args = parser.parse_args()
    args.tokens = args.tokens or (2048 if args.figure == "limit" else 256)
    {"start": start, "plugins": plugins, "compile": compile_, "peer": peer, "limit": limit, "ladder": ladder}[args.figure](args)


if __name__ == "__main__":
    sys.exit(main())
