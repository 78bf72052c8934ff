"""`gpt2 --pipeline` has the losses and gradient norms of DeepSpeed's PipelineModule, on the same weights, tokens and config.

    python3 pipeline_parity_test.py GANNET GPT2          # --all: every run of the file, 1 to 4 stages

data/pipeline_parity.json has what DeepSpeed computed, and a plain loop of PyTorch in fp64 (bench/parity/pipeline.py writes it).
Where DeepSpeed has no norm, or clips by the norm of its first stage alone, the plain loop's number is the expected one.
"""
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import pipeline_inputs

BOUND = 2e-5
DATA = pathlib.Path(__file__).resolve().parent / "data/pipeline_parity.json"
# (stages, ranks along data, ZeRO stage, clipping)
CASES = [(2, 1, 0, 1.7), (2, 1, 1, 1.7), (2, 1, 0, 0.0), (2, 2, 1, 1.7)]


def fail(message):
    sys.exit(f"FAILED: {message}")


def train(gannet, program, folder, expected, run):
    config = {**expected["config"], "gradient_clipping": run["gradient_clipping"], "zero_optimization": {"stage": run["zero_stage"]},
              "accelerator": {"type": "cpu"}}
    file, metrics = folder / "ds_config.json", folder / "metrics.jsonl"
    file.write_text(json.dumps(config))
    metrics.unlink(missing_ok=True)
    command = [gannet, "run", "--num_procs", run["stages"] * run["data_ranks"], program, "--pipeline", run["stages"],
               "--model", folder / "model", "--tokens", folder / "tokens.bin", "--seq-len", expected["length"],
               "--steps", expected["steps"], "--threads", 1, "--metrics", metrics, "--deepspeed_config", file]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        fail(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return [json.loads(line) for line in metrics.read_text().splitlines()]


def compare(name, steps, losses, norms):
    """Returns the largest relative difference."""
    if not len(steps) == len(losses) == len(norms):
        fail(f"{name}: {len(steps)} steps for {len(losses)}")
    worst = 0.0
    for step, loss, norm in zip(steps, losses, norms):
        for key, number in (("loss", loss), ("grad_norm", norm)):
            if not math.isclose(step[key], number, rel_tol=BOUND):
                fail(f"{name}, step {step['step']}: {key} is {step[key]}, expected {number}")
            worst = max(worst, abs(step[key] - number) / number)
    return worst


def main(gannet, program, *options):
    expected = json.loads(DATA.read_text())
    runs = {(run["stages"], run["data_ranks"], run["zero_stage"], run["gradient_clipping"]): run for run in expected["runs"]}
    with tempfile.TemporaryDirectory() as path:
        folder = pathlib.Path(path)
        pipeline_inputs.write(folder)
        for case in runs if "--all" in options else CASES:
            run = runs[case]
            peer = run["plain_fp64" if run["deepspeed_clips_by_one_stage"] else "deepspeed"]
            name = "stages {}, ranks along data {}, ZeRO {}, clipping {}".format(*case)
            steps = train(gannet, program, folder, expected, run)
            worst = compare(name, steps, peer["losses"], peer["norms"] or run["plain_fp64"]["norms"])
            print(f"{name}: within {worst:.1e}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
