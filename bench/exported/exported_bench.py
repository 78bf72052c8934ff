"""Forward and backward of GPT-2 as an exported graph, against eager Python and against the model written in C++.

    PYTHONPATH=python VENV/bin/python bench/exported/exported_bench.py --build build-bench --work DIR

VENV has PyTorch 2.11.0, transformers and safetensors. Makes the models under DIR where they are not there yet. Two processes
live for the whole run, one in Python and one in C++ (native_side.cpp has its sides), on one thread each; each times itself,
without the release of the gradients. In every round each side takes its turn, in an order that rotates. Prints every round, and for each size the median
of the rounds' ratios: wall time, and the processor time of the process.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SIDES = ("exported", "eager", "same", "example", "models")
BARS = {"eager": 1.0, "same": 1.02, "example": 1.02}
SIZES = {  # layers, width, heads, vocabulary
    "tiny": (2, 16, 4, 40),
    "small": (4, 256, 4, 2048),
    "gpt2": (12, 768, 12, 50257),
}
BATCHES = ((2, 8), (4, 64))


def make_model(name, folder):
    """Weights without dropout, in Hugging Face's format and as a graph."""
    import torch
    import transformers
    from transformers.utils import logging
    import gannet_export
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    layers, width, heads, vocabulary = SIZES[name]
    torch.manual_seed(1)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=vocabulary, n_positions=128, n_embd=width, n_layer=layers, n_head=heads, embd_pdrop=0, attn_pdrop=0, resid_pdrop=0,
        bos_token_id=0, eos_token_id=0, use_cache=False))
    model.save_pretrained(folder / "python")
    tokens = torch.randint(1, vocabulary, (3, 10))
    gannet_export.export_model(model, {"input_ids": tokens, "labels": tokens.clone()}, str(folder / "exported"),
                               dtypes=("fp32",), modes=("train",), say=lambda line: None)


class Process:
    def __init__(self, *command):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        self.process = subprocess.Popen([str(one) for one in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def run(self, side, batch, count):
        """Seconds of wall time and of processor time per pass, the loss and the norm of the gradient."""
        self.process.stdin.write(f"{side} {batch[0]} {batch[1]} {count}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{side}: the process ended with status {self.process.wait()}")
        wall, cpu, loss, norm = map(float, line.split())
        return wall / count, cpu / count, loss, norm

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def measure(name, batch, processes, options):
    first = {side: processes[side].run(side, batch, 2) for side in SIDES}
    for side in SIDES[1:]:
        for here, there in zip(first["exported"][2:], first[side][2:]):
            if abs(here - there) > 1e-5 * abs(there):
                sys.exit(f"{name}: the loss or the gradient of {side} is {there}, and of the exported graph {here}")
    bits = first["exported"][2:] == first["eager"][2:]
    print(f"{name} {batch[0]} x {batch[1]}: loss {first['exported'][2]:.9g}, gradient {first['exported'][3]:.9g}; "
          f"{'all digits as' if bits else 'other digits than'} in Python", flush=True)
    count = max(1, round(options.seconds / min(processes[side].run(side, batch, 3)[0] for side in SIDES)))
    times = {side: ([], []) for side in SIDES}
    for turn in range(options.rounds + 1):
        line = f"  round {turn}:" if turn else "  warm-up:"
        for k in range(len(SIDES)):
            side = SIDES[(turn + k) % len(SIDES)]
            wall, cpu, _, _ = processes[side].run(side, batch, count)
            line += f" {side} {wall * 1e3:.3f} ({cpu * 1e3:.3f})"
            if turn:
                times[side][0].append(wall)
                times[side][1].append(cpu)
        print(line + " ms", flush=True)
    row = {"model": name, "batch": list(batch), "passes": count, "rounds": options.rounds}
    for side in SIDES:
        row[side + "_ms"] = [round(statistics.median(one) * 1e3, 3) for one in times[side]]
    for side in SIDES[1:]:
        row["to_" + side] = [round(statistics.median(a / b for a, b in zip(times["exported"][i], times[side][i])), 4) for i in (0, 1)]
    return row


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, default="build-bench")
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--sizes", nargs="+", default=["tiny", "small"], choices=SIZES)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.3, help="of a side's turn")
    parser.add_argument("--only-make", action="store_true", help="make the models, and do not measure")
    options = parser.parse_args()
    rows = []
    for name in options.sizes:
        folder = options.work / name
        if not (folder / "exported" / "config.json").exists():
            make_model(name, folder)
        if options.only_make:
            continue
        native = Process(options.build / "bench" / "native_side", folder / "exported", folder / "python")
        python = Process(sys.executable, HERE / "eager_side.py", folder / "python")
        processes = {side: python if side == "eager" else native for side in SIDES}
        rows += [measure(name, batch, processes, options) for batch in BATCHES]
        native.close()
        python.close()
    for row in rows:
        print(f"{row['model']} {row['batch'][0]} x {row['batch'][1]}: exported {row['exported_ms'][0]} ms;" + ",".join(
            f" / {side} ({row[side + '_ms'][0]} ms) {row['to_' + side][0]} wall, {row['to_' + side][1]} CPU"
            + (f" (at most {BARS[side]})" if side in BARS else "") for side in SIDES[1:]))
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
