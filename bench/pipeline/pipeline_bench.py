"""Tokens per second and memory of a pipeline of GPT-2: examples/gpt2 --pipeline beside DeepSpeed's PipelineModule.

    python3 bench/pipeline/pipeline_bench.py --peer-python VENV/bin/python --work DIR [--build build] [--rounds 7]
    python3 bench/pipeline/pipeline_bench.py ... --ours 1f1b --ours zb-v:time          # schedule:partition, in the same rounds
    python3 bench/pipeline/pipeline_bench.py ... --layers 4 --width 256 --heads 4 --vocabulary 8192 --steps 4 --rounds 3

VENV is that of bench/parity. The default is GPT-2 124M in fp32: 2 stages, 8 micro-batches of 4 x 256 tokens, one thread a rank,
the same weights, tokens and config. Each round runs DeepSpeed and each of ours, one after the other; a run's figure is that of
its median step after the first two. Peak memory is each rank's largest resident set (VmHWM). Beside a step stand the seconds that
each rank spends in forward and in backward passes alone: without waiting, the update and the transport. The last lines are JSON
with the median of the rounds' ratios last, one for each of ours; "passes" is the same ratio of the busiest ranks' passes.

Without --zero 1 nothing is clipped: DeepSpeed clips each stage by that stage's own norm at ZeRO 0, so the losses would differ.
"""
import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

root = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.append(str(root / "bench"))
from figures import alternate, report  # noqa: E402
from real_layers import passes_of  # noqa: E402

MAKE_MODEL = """
import sys, torch
from transformers import GPT2Config, GPT2LMHeadModel
folder, layers, width, heads, vocabulary, positions = sys.argv[1], *map(int, sys.argv[2:])
torch.manual_seed(7)
GPT2LMHeadModel(GPT2Config(n_layer=layers, n_embd=width, n_head=heads, vocab_size=vocabulary, n_positions=positions, resid_pdrop=0.0,
                           embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)).save_pretrained(folder)
"""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def peak_mib(pid):
    """The largest resident set so far, of this process alone; None once it has ended."""
    try:
        for line in open(f"/proc/{pid}/status"):
            if line.startswith("VmHWM:"):
                return round(int(line.split()[1]) / 1024)
    except OSError:
        pass
    return None


def run_ranks(command, ranks, log):
    """Starts the ranks as a launcher does, and returns each one's peak resident memory in MiB.

    The peaks are read while the ranks run: wait4's would include the compilers that DeepSpeed starts.
    """
    shared = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    with open(log, "w") as out:
        children = [subprocess.Popen([str(word) for word in command], stdout=out, stderr=subprocess.STDOUT,
                                     env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(ranks)]
        peaks = [0] * ranks
        while any(child.poll() is None for child in children) and not any(child.returncode for child in children):
            peaks = [peak_mib(child.pid) or peak for child, peak in zip(children, peaks)]
            time.sleep(0.05)
        for child in children:  # those that wait for a rank that failed
            if child.poll() is None:
                child.kill()
            child.wait()
    if any(child.returncode for child in children):
        sys.exit(f"{command[0]} failed; its output is in {log}")
    return peaks


def inputs(args):
    """The folder of the model and the file of 2-byte tokens; made once."""
    name = f"l{args.layers}-w{args.width}-h{args.heads}-v{args.vocabulary}-t{args.length}"
    model, tokens = args.work / f"model-{name}", args.work / f"tokens-v{args.vocabulary}.bin"
    if not (model / "model.safetensors").exists():
        sizes = [args.layers, args.width, args.heads, args.vocabulary, args.length]
        subprocess.run([str(word) for word in [args.peer_python, "-c", MAKE_MODEL, model, *sizes]], check=True, stderr=subprocess.DEVNULL)
    if not tokens.exists():
        tokens.write_bytes(b"".join((index * 7919 % args.vocabulary).to_bytes(2, "little") for index in range(200_000)))
    return model, tokens


def deepspeed_passes(prefix, rank):
    """Seconds of the forward and of the backward passes of a step; the median of the steps after the first two."""
    steps = json.loads(pathlib.Path(f"{prefix}.rank{rank}.json").read_text())[2:]
    return [statistics.median(step[kind] for step in steps) for kind in ("forward", "backward")]


def gannet_passes(prefix, rank, last_step):
    """The same, from the spans of a trace; a backward in two passes counts both."""
    trace = pathlib.Path(f"{prefix}.rank{rank}.json" if rank else f"{prefix}.json")
    steps = [passes_of(trace, step) for step in range(3, last_step + 1)]
    of = lambda kinds: statistics.median(sum(end - begin for kind, begin, end in step if kind in kinds) for step in steps)
    return [of("F"), of("BIW")]


def bench(args):
    args.work.mkdir(parents=True, exist_ok=True)
    model, tokens = inputs(args)
    config = {"train_micro_batch_size_per_gpu": args.micro_batch, "gradient_accumulation_steps": args.micro_batches,
              "gradient_clipping": 1.0 if args.zero else 0.0, "steps_per_print": 1000, "zero_optimization": {"stage": args.zero},
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.01, "torch_adam": args.torch_adam}}}
    tokens_a_step = args.micro_batch * args.micro_batches * args.length
    losses, peaks, passes = {}, {}, {}

    def tokens_per_second(name, command, own=None):
        with tempfile.TemporaryDirectory(dir=args.work) as path:
            file, metrics = pathlib.Path(path) / "ds_config.json", pathlib.Path(path) / "metrics.jsonl"
            pass_times = pathlib.Path(path) / "passes"
            if own is None:
                command = [*command, "--pass-times", pass_times]
            else:
                own["gannet"]["trace"] = {"path": str(pass_times) + ".json", "first_step": 3, "last_step": args.steps}
            file.write_text(json.dumps({**config, **(own or {})}))
            peak = run_ranks([*command, "--pipeline", args.stages, "--model", model, "--tokens", tokens, "--token-bytes", 2, "--seq-len", args.length,
                              "--steps", args.steps, "--threads", 1, "--deepspeed_config", file, "--metrics", metrics], args.stages, args.work / f"{name}.log")
            steps = [json.loads(line) for line in open(metrics)]
            in_passes = [deepspeed_passes(pass_times, rank) if own is None else gannet_passes(pass_times, rank, args.steps) for rank in range(args.stages)]
        losses[name] = steps[-1]["loss"]
        peaks.setdefault(name, []).append(peak)
        passes.setdefault(name, []).append(max(sum(rank) for rank in in_passes))
        seconds = statistics.median(step["seconds"] for step in steps[2:])
        print(f"  {name}: {seconds:.3f} s a step, forward and backward alone", ", ".join(f"{forward:.3f} + {backward:.3f}" for forward, backward in in_passes), f"s, peak of each rank {peak} MiB, last loss {losses[name]:.6f}", flush=True)
        return tokens_a_step / seconds

    def settings_of(variant):
        schedule, _, partition = variant.partition(":")
        return {"gannet": {"pipeline": {"schedule": schedule}}, **({"pipeline": {"partition": partition}} if partition else {})}

    ours = [args.build / "bin/gpt2", *(["--plain-operators"] if args.plain_operators else [])]
    # DeepSpeed has 1f1b alone, and its model divides by blocks.
    contenders = {"deepspeed": lambda: tokens_per_second("deepspeed", [args.peer_python, root / "bench/parity/pipe_peer.py"])}
    for variant in args.ours:
        contenders[variant] = lambda variant=variant: tokens_per_second(variant, ours, settings_of(variant))
    figures = alternate(contenders, args.rounds, warms_up=False)  # the first steps of each run do
    for variant in args.ours:
        if abs(losses[variant] - losses["deepspeed"]) > 1e-4 * losses["deepspeed"]:
            sys.exit(f"the last losses differ: {losses}")
        both = {"ours": variant, "deepspeed": "deepspeed"}
        ratio_of_passes = statistics.median(theirs / mine for mine, theirs in zip(passes[variant], passes["deepspeed"]))
        report("pipeline_gpt2", figures, variant, "deepspeed", layers=args.layers, width=args.width, vocabulary=args.vocabulary, stages=args.stages,
               micro_batches=args.micro_batches, tokens_a_micro_batch=args.micro_batch * args.length, zero=args.zero,
               passes=round(ratio_of_passes, 4),
               **{f"{name}_peak_mib": [statistics.median(one[rank] for one in peaks[of]) for rank in range(args.stages)] for name, of in both.items()})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=5, help="of a run; the first two do not count")
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--zero", type=int, choices=(0, 1), default=0)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--vocabulary", type=int, default=50257)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--micro-batch", type=int, default=4, help="samples")
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--ours", action="append", metavar="SCHEDULE[:PARTITION]", help="ours to run: 1f1b unless given; :time, :memory ...")
    parser.add_argument("--torch-adam", action="store_true", help="DeepSpeed with torch.optim.AdamW in place of its own")
    parser.add_argument("--plain-operators", action="store_true", help="gpt2 with the operators that the peer has")
    args = parser.parse_args()
    args.ours = args.ours or ["1f1b"]
    if args.steps < 3:
        parser.error("--steps: 3 at least")
    bench(args)


if __name__ == "__main__":
    main()
