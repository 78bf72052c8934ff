"""Trains a GPT-2 as a pipeline under DeepSpeed and under Gannet, and in a plain loop in fp64, and compares every step.

    python3 bench/parity/pipeline.py --peer-python VENV/bin/python --work DIR [--only TEXT] [--table bench/parity/README.md] [--expected FILE]

VENV is that of parity.py. The model and the tokens are those of tests/examples/pipeline_inputs.py. What the peer did is kept
in DIR and not done again. --expected writes the peer's numbers for tests/examples/pipeline_parity_test.py. Bound: Gannet's
losses and norms within 2e-5 of the plain loop's and of DeepSpeed's. Where DeepSpeed clips by the norm of its first stage, it
is compared with a plain loop that does the same.
"""
import argparse
import json
import pathlib
import subprocess
import sys

from parity import largest, run, write_table

STEPS, LENGTH, BOUND = 20, 32, 2e-5
here = pathlib.Path(__file__).resolve().parent
sys.path.append(str(here.parent.parent / "tests/examples"))
import pipeline_inputs  # noqa: E402


def cases():
    """Norms here fall from 4.4 to 1.2, so that some steps are clipped and others are not: AdamW ignores a factor that all steps share."""
    for clipping, (stages, data), zero in ((c, s, z) for c in (1.7, 0.0) for s in ((1, 1), (2, 1), (2, 2), (4, 1)) for z in (0, 1)):
        if clipping or stages > 1 and zero == 0:
            yield {"stages": stages, "data_ranks": data, "zero_stage": zero, "gradient_clipping": clipping}


def name_of(case):
    return f"p{case['stages']}-d{case['data_ranks']}-s{case['zero_stage']}-c{case['gradient_clipping']}"


# DeepSpeed at stage 0 leaves the gradients of all stages but the first out of the norm that it clips by: `clip_grad_norm_` counts
# the parameters of the first rank of its model-parallel group, and in a pipeline all stages are such a group.
def peer_clips_by_one_stage(case):
    return case["stages"] > 1 and case["zero_stage"] == 0 and case["gradient_clipping"] > 0


CONFIG = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, "steps_per_print": 1000,
          "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "torch_adam": True}}}


def config(case):
    return {**CONFIG, "gradient_clipping": case["gradient_clipping"], "zero_optimization": {"stage": case["zero_stage"]}}


def train(args, case, side):
    folder = args.work / name_of(case)
    folder.mkdir(exist_ok=True)
    metrics, file = folder / f"{side}.jsonl", folder / "ds_config.json"
    if side != "gannet" and metrics.exists() and len(metrics.read_text().splitlines()) == STEPS:
        return [json.loads(line) for line in open(metrics)]
    metrics.unlink(missing_ok=True)
    file.write_text(json.dumps(config(case), indent=2))
    processes, peer = case["stages"] * case["data_ranks"], here / "pipe_peer.py"
    torchrun = pathlib.Path(args.peer_python).parent / "torchrun"
    start = {"gannet": [args.build / "bin/gannet", "run", "--num_procs", processes, args.build / "bin/gpt2", "--plain-operators", "--pipeline", case["stages"]],
             "deepspeed": [torchrun, "--nproc-per-node", processes, "--master-port", "29619", peer, "--pipeline", case["stages"]],
             "plain": [args.peer_python, peer, "--plain", "float64", "--ranks", case["data_ranks"]],
             "one_stage": [args.peer_python, peer, "--plain", "float64", "--ranks", case["data_ranks"], "--clip-by-blocks", pipeline_inputs.LAYERS // case["stages"]]}[side]
    flags = ["--model", args.work / "model", "--tokens", args.work / "tokens.bin", "--seq-len", LENGTH, "--steps", STEPS,
             "--threads", 1, "--deepspeed_config", file, "--metrics", metrics]
    run([str(word) for word in [*start, *flags]], folder, f"{side}.log")
    steps = [json.loads(line) for line in open(metrics)]
    assert len(steps) == STEPS, f"{name_of(case)}, {side}: {len(steps)} steps"
    return steps


def apart(left, right, key):
    """The largest relative difference of the steps; None where one side has no such number."""
    return None if any(step[key] is None for step in left + right) else largest(left, right, key)


def numbers_of(steps):
    norms = [step["grad_norm"] for step in steps]
    return {"losses": [step["loss"] for step in steps], "norms": None if None in norms else norms}


def write_expected(path, args, runs):
    packages = ("deepspeed", "torch", "transformers")
    versions = subprocess.run([args.peer_python, "-c", f"import importlib.metadata as m; print(*(m.version(name) for name in {packages}))"],
                              check=True, capture_output=True, text=True).stdout.split()
    head = {"made_by": "python3 bench/parity/pipeline.py --peer-python VENV/bin/python --work DIR --expected FILE",
            **dict(zip(packages, versions)),
            "inputs": "tests/examples/pipeline_inputs.py", "inputs_seed": pipeline_inputs.SEED, "steps": STEPS, "length": LENGTH,
            "config": CONFIG}
    lines = ",\n  ".join(json.dumps(one) for one in runs)
    path.write_text("{\n" + "".join(f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in head.items()) + ' "runs": [\n  ' + lines + "\n ]\n}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--only", default="")
    parser.add_argument("--table", type=pathlib.Path)
    parser.add_argument("--expected", type=pathlib.Path)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    pipeline_inputs.write(args.work)

    rows, runs, failed = [], [], False
    for case in cases():
        if args.only not in name_of(case):
            continue
        theirs, plain, ours = (train(args, case, side) for side in ("deepspeed", "plain", "gannet"))
        figures = [apart(ours, theirs, "loss"), apart(ours, theirs, "grad_norm"), apart(ours, plain, "loss"), apart(ours, plain, "grad_norm"), apart(theirs, plain, "loss")]
        one_stage = apart(theirs, train(args, case, "one_stage"), "loss") if peer_clips_by_one_stage(case) else None
        judged = figures[2:4] + [one_stage] if peer_clips_by_one_stage(case) else figures
        figures.append(one_stage)
        good = max(figure for figure in judged if figure is not None) <= BOUND
        failed |= not good
        cells = [case["stages"], case["data_ranks"], case["zero_stage"], case["gradient_clipping"] or "none"]
        rows.append("| " + " | ".join(map(str, cells + ["-" if figure is None else f"{figure:.1e}" for figure in figures])) + f" | {'yes' if good else '**no**'} |")
        print(rows[-1], flush=True)
        runs.append({**case, "deepspeed_clips_by_one_stage": peer_clips_by_one_stage(case), "deepspeed": numbers_of(theirs), "plain_fp64": numbers_of(plain)})
    if args.table and rows:
        write_table(args.table, "pipeline", ["stages", "ranks along data", "ZeRO", "clipping", "loss", "gradient norm", "loss / fp64", "gradient norm / fp64", "DeepSpeed's loss / fp64", "the same, clipped by one stage", "within 2e-5"], rows)
    if args.expected and runs:
        write_expected(args.expected, args, runs)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
