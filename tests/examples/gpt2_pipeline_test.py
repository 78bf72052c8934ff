"""`gpt2 --pipeline`: stages train as one process does, with every schedule; their checkpoint resumes without a pipeline.

    python3 gpt2_pipeline_test.py GANNET GPT2
"""
import json
import math
import pathlib
import subprocess
import sys
import tempfile


def fail(message):
    sys.exit(f"FAILED: {message}")


def train(gannet, program, folder, processes, stages, zero=0, schedule="1f1b", more=(), steps=4):
    config = {"train_batch_size": 8, "gradient_accumulation_steps": 4, "gradient_clipping": 0.5,
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "zero_optimization": {"stage": zero},
              "accelerator": {"type": "cpu"}, "gannet": {"pipeline": {"schedule": schedule}}}
    file, metrics = folder / "ds_config.json", folder / "metrics.jsonl"
    file.write_text(json.dumps(config))
    metrics.unlink(missing_ok=True)
    command = [gannet, "run", "--num_procs", processes, program, "--layers", 4, "--width", 32, "--heads", 2, "--seq-len", 24,
               "--steps", steps, "--generate", 0, "--metrics", metrics, "--deepspeed_config", file, "--threads", 1,
               "--pipeline", stages, *more]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        fail(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    if stages > 1 and "pipeline of" not in done.stdout + done.stderr:
        fail(f"the stages are not printed\n{done.stdout}{done.stderr}")
    return [(step["loss"], step["grad_norm"]) for step in map(json.loads, metrics.read_text().splitlines())]


def compare(name, found, expected):
    if len(found) != len(expected):
        fail(f"{name}: {len(found)} steps")
    for one, other in zip(found, expected):
        for a, b in zip(one, other):
            if not math.isclose(a, b, rel_tol=2e-5):
                fail(f"{name}: {found}, and one process has {expected}")
    print(f"{name}: losses {[round(loss, 4) for loss, _ in found]}", flush=True)


def main(gannet, program):
    with tempfile.TemporaryDirectory() as path:
        folder = pathlib.Path(path)
        expected = train(gannet, program, folder, 1, 1, steps=6)
        saves = ["--save-checkpoint", folder / "saved", "--save-model", folder / "model"]
        compare("2 stages", train(gannet, program, folder, 2, 2, more=saves), expected[:4])
        again = train(gannet, program, folder, 1, 1, more=["--model", folder / "model"], steps=1)
        if not math.isclose(again[0][0], expected[4][0], rel_tol=0.2):  # the optimizer's states are new, and the samples are the first
            fail(f"the saved model begins at the loss {again[0][0]}")
        compare("2 stages of 2 processes, ZeRO 2, gpipe", train(gannet, program, folder, 4, 2, 2, "gpipe"), expected[:4])
        compare("2 stages, interleaved", train(gannet, program, folder, 2, 2, 1, "interleaved"), expected[:4])
        went_on = train(gannet, program, folder, 1, 1, more=["--load-checkpoint", folder / "saved"], steps=2)
        compare("one process after 2 stages", went_on, expected[4:])


if __name__ == "__main__":
    main(*sys.argv[1:])
