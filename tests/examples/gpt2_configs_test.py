"""One binary, only the config edited: every optimizer, schedule, precision and number of processes trains a tiny GPT-2.

    python3 gpt2_configs_test.py GANNET GPT2 [PLUGIN_FOLDER]

Each run must name its plugins, learn, and use the learning rates that `gannet schedule` prints for its config. With
PLUGIN_FOLDER it is the optimizer Momentum of that folder, found through the config alone, that trains.
"""
import json
import math
import pathlib
import subprocess
import sys
import tempfile

STEPS = 12
OPTIMIZERS = {
    "AdamW": {"lr": 1e-2, "weight_decay": 0.1},
    "Adam": {"lr": 1e-2, "betas": [0.9, 0.95]},
    "SGD": {"lr": 0.3, "momentum": 0.9},
    "Momentum": {"lr": 0.3, "dampening": 0.1},
}
SCHEDULERS = {
    None: {},
    "WarmupLR": {"warmup_min_lr": 1e-3, "warmup_max_lr": 2e-2, "warmup_num_steps": 4},
    "WarmupDecayLR": {"warmup_min_lr": 1e-3, "warmup_max_lr": 2e-2, "warmup_num_steps": 4, "total_num_steps": 20},
    "WarmupCosineLR": {"warmup_num_steps": 4, "total_num_steps": 20, "warmup_min_ratio": 0.1},
    "OneCycle": {"cycle_min_lr": 2e-3, "cycle_max_lr": 2e-2, "cycle_first_step_size": 5},
    "LRRangeTest": {"lr_range_test_min_lr": 5e-3, "lr_range_test_step_size": 4, "lr_range_test_step_rate": 1.0},
}


def fail(message):
    sys.exit(f"FAILED: {message}")


def train(gannet, program, folder, optimizer, scheduler, dtype, ranks, plugins=None):
    name = f"{optimizer}, {scheduler}, {dtype}, {ranks} processes"
    config = {"train_micro_batch_size_per_gpu": 4, "gradient_clipping": 1.0,
              "optimizer": {"type": optimizer, "params": OPTIMIZERS[optimizer]}}
    if scheduler:
        config["scheduler"] = {"type": scheduler, "params": SCHEDULERS[scheduler]}
    if dtype == "bf16":
        config["bf16"] = {"enabled": True}
    if dtype == "fp16":
        config["fp16"] = {"enabled": True, "initial_scale_power": 8}
    if plugins:
        config["plugins"] = {"path": [plugins]}
    file, metrics = folder / "ds_config.json", folder / "metrics.jsonl"
    file.write_text(json.dumps(config))
    command = [gannet, "run", "--num_procs", ranks, program, "--layers", 1, "--width", 32, "--heads", 2, "--seq-len", 32,
               "--steps", STEPS, "--generate", 0, "--metrics", metrics, "--deepspeed_config", file]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        fail(f"{name}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    for plugin in filter(None, ("cpu", "gloo" if ranks > 1 else "local", optimizer, scheduler)):
        if not any(plugin in line.split() for line in done.stdout.splitlines()):
            fail(f"{name}: the plugin table does not name {plugin}\n{done.stdout}")
    steps = [json.loads(line) for line in metrics.read_text().splitlines()]
    losses = [step["loss"] for step in steps]
    if len(losses) != STEPS or not all(map(math.isfinite, losses)) or min(losses[-3:]) > losses[0] - 0.3:
        fail(f"{name}: it did not learn: {losses}")
    if scheduler:
        rows = subprocess.run([gannet, "schedule", file, "--steps", str(STEPS), "--world-size", str(ranks)], check=True,
                              capture_output=True, text=True).stdout.splitlines()[1:]
        for step, row in zip(steps, rows, strict=True):
            if not math.isclose(step["lr"], float(row.split(",")[1]), rel_tol=1e-6, abs_tol=1e-12):
                fail(f"{name}: step {step['step']} used {step['lr']}, the schedule says {row}")
    print(f"{name}: loss {losses[0]:.3f} -> {losses[-1]:.3f}", flush=True)
    return losses


def main():
    gannet, program = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if len(sys.argv) > 3:
            for ranks in (1, 2):
                train(gannet, program, folder, "Momentum", "WarmupLR", "fp32", ranks, sys.argv[3])
            return
        for scheduler in SCHEDULERS:
            train(gannet, program, folder, "AdamW", scheduler, "fp32", 1)
        train(gannet, program, folder, "Adam", "WarmupLR", "fp32", 1)
        for optimizer in ("AdamW", "SGD"):
            for ranks in (1, 2):
                wide = train(gannet, program, folder, optimizer, "WarmupLR", "fp32", ranks)
                for dtype in ("bf16", "fp16"):
                    narrow = train(gannet, program, folder, optimizer, "WarmupLR", dtype, ranks)
                    if abs(narrow[0] - wide[0]) > 0.02 * wide[0]:
                        fail(f"the first loss in {dtype} is {narrow[0]}, in fp32 {wide[0]}")


if __name__ == "__main__":
    main()
