"""A pipeline of real layers beside the simulator, and the idle time of zb-v beside that of 1f1b: GPT-2 in 2 stages, one thread each.

    python3 bench/pipeline/real_layers.py --build build [--rounds 7] [--layers 8] [--width 512] [--length 256] [--micro-batches 8]

Each round runs both schedules, one after the other, and reads the spans of the passes from their traces. A step lasts from its
first pass to the end of its last one, without the update. The simulator gets the time of each pass in that step and the order
of the schedule. The last lines are JSON: the median of the rounds' ratios of a step to the simulated one, and of the idle shares.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

KINDS = {"forward": "F", "backward": "B", "backward of inputs": "I", "backward of weights": "W"}


def passes_of(trace, step):
    """The passes of one rank in a step: (kind, begin, end) in order, in seconds."""
    events = [event for event in json.loads(trace.read_text()) if event["ph"] == "X" and event["args"]["step"] == step and event["name"] in KINDS]
    halves = [event for event in events if event["name"].startswith("backward of")]
    spans = []
    for event in events:
        inner = [half for half in halves if event["name"] == "backward" and event["ts"] <= half["ts"] and half["ts"] + half["dur"] <= event["ts"] + event["dur"]]
        if not inner:  # of a backward in two passes, the inner span says which one it is
            spans.append((KINDS[event["name"]], event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6))
    return sorted(spans, key=lambda span: span[1])


def simulated(rows, spans):
    """The length of a step of these rows of actions, each as long as it was."""
    parts = max(int(cell[0]) for row in rows for cell in row) + 1
    ended, free, next_of = {}, [0.0] * len(rows), [0] * len(rows)
    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(rows):
            while next_of[rank] < len(row):
                part, kind, micro_batch = row[next_of[rank]]
                part = int(part)
                needs = []
                if kind == "F" and part > 0:
                    needs = [("F", part - 1, micro_batch)]
                if kind in "BI":
                    needs = [("F", part, micro_batch)] + ([("I", part + 1, micro_batch)] if part + 1 < parts else [])
                if kind == "W":
                    needs = [("I", part, micro_batch)]
                if any(need not in ended for need in needs):
                    break
                _, begin, end = spans[rank][next_of[rank]]
                free[rank] = max([free[rank], *(ended[need] for need in needs)]) + end - begin
                ended["I" if kind == "B" else kind, part, micro_batch] = free[rank]
                next_of[rank] += 1
                moved = True
    return max(free)


def rows_of(args, schedule):
    text = subprocess.run([args.build / "bin/gannet", "pipeline", "show", "--schedule", schedule, "--stages", "2", "--micro-batches", str(args.micro_batches), "--csv"],
                          check=True, capture_output=True, text=True).stdout
    split = lambda cell: next((cell[:i], cell[i], int(cell[i + 1:])) for i, letter in enumerate(cell) if letter in "FBIW")
    return [[split(cell) for cell in line.split(",")] for line in text.split()]


def run(args, schedule):
    """(measured over simulated, idle share) of each traced step."""
    with tempfile.TemporaryDirectory() as path:
        folder = pathlib.Path(path)
        config = {"train_micro_batch_size_per_gpu": args.micro_batch, "gradient_accumulation_steps": args.micro_batches, "steps_per_print": 1000,
                  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "pipeline": {"partition": args.partition},
                  "gannet": {"pipeline": {"schedule": schedule}, "trace": {"path": str(folder / "trace.json"), "first_step": 3, "last_step": args.steps}}}
        (folder / "ds_config.json").write_text(json.dumps(config))
        command = [args.build / "bin/gannet", "run", "--num_procs", 2, args.build / "bin/gpt2", "--pipeline", 2, "--layers", args.layers, "--width", args.width,
                   "--heads", args.width // 64, "--positions", args.length, "--seq-len", args.length, "--steps", args.steps, "--threads", 1, "--generate", 0,
                   "--deepspeed_config", folder / "ds_config.json"]
        subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
        rows, found = rows_of(args, schedule), []
        for step in range(3, args.steps + 1):
            spans = [passes_of(folder / name, step) for name in ("trace.json", "trace.rank1.json")]
            assert [[kind for kind, *_ in rank] for rank in spans] == [[kind for _, kind, _ in row] for row in rows], "the trace has the schedule's order"
            length = max(end for rank in spans for *_, end in rank) - min(begin for rank in spans for _, begin, _ in rank)
            busy = sum(end - begin for rank in spans for _, begin, end in rank)
            found.append((length / simulated(rows, spans), 1 - busy / (2 * length), length))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=6, help="of a run; the first two do not count")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--micro-batch", type=int, default=2, help="samples")
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--partition", default="type:block")
    args = parser.parse_args()
    ratios, idle = {"1f1b": [], "zb-v": []}, {"1f1b": [], "zb-v": []}
    for index in range(args.rounds):
        words = []
        for schedule in ratios:
            steps = run(args, schedule)
            ratios[schedule].append(statistics.median(step[0] for step in steps))
            idle[schedule].append(statistics.median(step[1] for step in steps))
            words.append(f"{schedule}: {ratios[schedule][-1]:.3f} of the simulated step, idle {idle[schedule][-1]:.3f}, {statistics.median(step[2] for step in steps):.2f} s")
        print(f"round {index + 1}", "; ".join(words), f"load {os.getloadavg()[0]:.1f}", flush=True)
    for schedule in ratios:
        print(json.dumps({"figure": f"pipeline_step_over_simulated_{schedule}", "rounds": args.rounds, "bar": 1.05, "ratio": round(statistics.median(ratios[schedule]), 4)}))
    print(json.dumps({"figure": "pipeline_idle_zb_v_over_1f1b", "rounds": args.rounds, "bar": 0.40,
                      "ratio": round(statistics.median(a / b for a, b in zip(idle["zb-v"], idle["1f1b"])), 4)}))


if __name__ == "__main__":
    main()
