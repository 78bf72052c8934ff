"""examples/gpt2 with a line of config that recomputes: the losses of each step are those without, to the last bit; and a config
that keeps activations under a limit says what it chose."""
import json
import pathlib
import subprocess
import sys
import tempfile

gannet, gpt2 = sys.argv[1:3]
failures = []
tokens = bytes((37 * i + i * i * 11) % 251 for i in range(20000))


def run(folder, name, extra, ranks, stage):
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        "accelerator": {"type": "cpu"},
        **extra,
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokens").write_bytes(tokens)
    metrics = folder / f"{name}.jsonl"
    command = [gpt2, "--layers", "4", "--width", "32", "--heads", "2", "--seq-len", "24", "--steps", "4", "--tokens",
               str(folder / "tokens"), "--threads", "1", "--metrics", str(metrics), "--deepspeed_config", str(folder / "config.json")]
    if ranks > 1:
        command = [gannet, "run", "--num_procs", str(ranks)] + command
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        failures.append(f"{name} on {ranks} ranks, stage {stage}: exit {done.returncode}\n{done.stderr}")
        return None, ""
    return [json.loads(line)["loss"] for line in metrics.read_text().splitlines()], done.stderr


def own(**members):
    return {"gannet": {"activation_checkpointing": members}}


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    for ranks, stage in ((1, 0), (2, 3)):
        plain, said = run(folder, "plain", {}, ranks, stage)
        if "activation checkpointing" in said:
            failures.append(f"a plain run speaks of it: {said}")
        ways = {"interval": own(interval=1), "number": {"activation_checkpointing": {"number_checkpoints": 2}},
                "limit": own(memory_limit="200KiB")}
        for way, extra in ways.items():
            losses, said = run(folder, way, extra, ranks, stage)
            if losses is not None and (losses != plain or len(losses) != 4):
                failures.append(f"{way}, {ranks} ranks: {losses} where {plain} are without")
            if "recomputed nothing" in said:
                failures.append(f"{way}: {said}")
            if way == "limit" and "of 6 layers are recomputed (transformer.h." not in said:
                failures.append(f"no choice is told: {said}")

print("\n".join(failures) if failures else "gpt2: the same losses with recomputation")
sys.exit(1 if failures else 0)
