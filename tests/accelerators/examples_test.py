"""The examples on the checked device train as on the CPU, and it reports nothing: at ZeRO stages 0 to 3, on each tier, with
accumulation, in each dtype, with each kind of checkpointing that a config chooses, on one rank and on two, and GPT-2 as two stages
of a pipeline.

    python3 examples_test.py GANNET GPT2 CNN BERT       a covering part; all with GANNET_TEST_FULL set
    python3 examples_test.py --list ...                 each case with how far its losses are from the CPU's
    python3 examples_test.py --accelerator cuda ...     on a GPU; --jobs 8 runs 8 cases in parallel
    python3 examples_test.py --comm nccl ...            over this Comm on the device, with its folder in GANNET_PLUGIN_PATH
    python3 examples_test.py --only "cnn.*fp32" ...     the cases whose line in the list matches

A use that nothing orders is an error there, a host read of the device's memory ends the process: both are seen by the exit code.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--list", action="store_true")
parser.add_argument("--accelerator", default="checked")
parser.add_argument("--comm", default="auto")
parser.add_argument("--jobs", type=int, default=1)
parser.add_argument("--only", default="")
for name in ("gannet", "gpt2", "cnn", "bert"):
    parser.add_argument(name)
arguments = parser.parse_args()
GANNET, GPT2, CNN, BERT = arguments.gannet, arguments.gpt2, arguments.cnn, arguments.bert
LISTS = arguments.list
IS_FULL = bool(os.environ.get("GANNET_TEST_FULL"))
PLACES = [(0, "none"), (1, "none"), (1, "cpu"), (2, "none"), (2, "cpu"), (2, "nvme"), (3, "none"), (3, "cpu"), (3, "nvme"),
          (3, "both"), (3, "nvme both")]
DTYPES = ["fp32", "bf16", "fp16"]
KEPT = {"gpt2": ["all", "layers", "operators"], "cnn": ["all", "operators"], "bert": ["all", "operators"]}
# Of the loss, which falls from about 5. Where LibTorch has other kernels for a device (attention and layer norm are compositions
# there), sums are taken in another order, and 16-bit roundings with them.
TOLERANCES = {"fp32": 1e-6 if arguments.accelerator == "checked" else 2e-5, "bf16": 2e-3, "fp16": 2e-3}
STEPS = 5


def cases():
    every = [(program, *place, dtype, kept, ranks) for program, kinds in KEPT.items() for place in PLACES for dtype in DTYPES
             for kept in kinds for ranks in (1, 2)]
    every += [("gpt2", *place, dtype, "all", "2 stages") for place in PLACES for dtype in DTYPES]
    if IS_FULL:
        return every
    # GPT-2 meets each place, the others a third of them; each meets every dtype, kind of checkpointing and number of ranks.
    chosen = []
    for first, (program, kinds) in enumerate(KEPT.items()):
        for turn, place in enumerate(PLACES if program == "gpt2" else PLACES[first::3]):
            chosen.append((program, *place, DTYPES[(turn + first) % 3], kinds[(turn // 2) % len(kinds)], 1 + (turn + first) % 2))
    return chosen + [("gpt2", 0, "none", "fp32", "all", "2 stages"), ("gpt2", 3, "both", "bf16", "all", "2 stages")]


def config_of(case, folder, accelerator, metrics):
    program, stage, tier, dtype, kept, ranks = case
    zero = {"stage": stage, "stage3_param_persistence_threshold": 200, "reduce_bucket_size": 5000}
    to = {"device": tier.split()[0], "nvme_path": str(folder / accelerator)} if tier.startswith("nvme") else {"device": "cpu"}
    if tier != "none":
        zero["offload_optimizer"] = to
    if tier.endswith("both"):
        zero["offload_param"] = to
    config = {"gradient_accumulation_steps": 2, "gradient_clipping": 1.0, "zero_optimization": zero,
              "accelerator": {"type": accelerator},
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.01}},
              "gannet": {"metrics": {"path": str(metrics)}}}
    if accelerator != "cpu":
        config["comm"] = {"type": arguments.comm}
    config["train_micro_batch_size_per_gpu"] = 4 if program != "cnn" else 400 // ranks
    if dtype != "fp32":
        config[dtype] = {"enabled": True}
        if program == "cnn":
            config["data_types"] = {"buffer_dtype": dtype}
    if dtype == "fp16":
        config["fp16"].update(initial_scale_power=22, hysteresis=1)  # skips at first
    if kept == "layers":
        config["activation_checkpointing"] = {"number_checkpoints": 2}
    if kept == "operators":
        config["gannet"]["activation_checkpointing"] = {"recompute": ["gelu", "relu", "layer_norm"]}
    return config


def losses_of(case, folder, accelerator):
    program, *_, ranks = case
    (folder / accelerator).mkdir(exist_ok=True)
    file, metrics = folder / f"{accelerator}.json", folder / f"{accelerator}.jsonl"
    metrics.unlink(missing_ok=True)
    file.write_text(json.dumps(config_of(case, folder, accelerator, metrics)))
    command = {"gpt2": [GPT2, "--layers", 2, "--width", 32, "--heads", 2, "--seq-len", 32, "--steps", STEPS, "--generate", 0,
                        "--plain-operators", "--deepspeed_config", file],
               "cnn": [CNN, "--epochs", 1, "--deepspeed_config", file],
               "bert": [BERT, 2 * STEPS, file]}[program]
    # LibTorch's convolutions are TF32 on a GPU by default: the variable tells NVIDIA's libraries to use fp32.
    if ranks == "2 stages":
        command += ["--pipeline", 2]
    processes = 1 if ranks == 1 else 2
    done = subprocess.run([str(word) for word in [GANNET, "run", "--num_procs", processes, *command]], capture_output=True, text=True,
                          env=dict(os.environ, OMP_NUM_THREADS="1", NVIDIA_TF32_OVERRIDE="0"), timeout=300)
    if done.returncode != 0:
        raise RuntimeError(f"{case} on {accelerator}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    steps = [json.loads(line) for line in metrics.read_text().splitlines()]
    return [(step["loss"], step["applied"]) for step in steps if step["kind"] == "step"]


def compare(case):
    """(how far the losses are apart, whether a step was skipped)."""
    with tempfile.TemporaryDirectory() as name:
        here, there = (losses_of(case, pathlib.Path(name), accelerator) for accelerator in ("cpu", arguments.accelerator))
    if len(here) != STEPS or len(there) != STEPS or [a for _, a in here] != [a for _, a in there]:
        raise RuntimeError(f"{case}: other steps were applied: {here} and {there}")
    apart = max(abs(a - b) for (a, _), (b, _) in zip(here, there))
    if LISTS:
        print(*case, apart, flush=True)
    if not apart <= TOLERANCES[case[3]] * max(abs(loss) for loss, _ in here):
        raise RuntimeError(f"{case}: the losses are {apart} apart: {here} and {there}")
    return apart, not all(applied for _, applied in here)


def main():
    chosen = [case for case in cases() if re.search(arguments.only, " ".join(map(str, case)))]
    farthest, bitwise, skipped, failed = {}, 0, 0, 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        compared = [(case, pool.submit(compare, case)) for case in chosen]
    for (program, *_, dtype, _, _), outcome in compared:
        if error := outcome.exception():
            print(f"FAILED: {error}")
            failed += 1
            continue
        apart, has_skipped = outcome.result()
        farthest[program, dtype] = max(apart, farthest.get((program, dtype), 0))
        bitwise += apart == 0
        skipped += has_skipped
    print(f"{len(chosen)} cases, {bitwise} of them bitwise, {skipped} with a skipped step; the losses' largest distances:")
    for (program, dtype), apart in farthest.items():
        print(f"  {program} {dtype}: {apart:.3g}")
    if failed:
        sys.exit(f"FAILED: {failed} cases")
    if not skipped and any("fp16" in case for case in chosen):
        sys.exit("FAILED: no step was skipped")


if __name__ == "__main__":
    main()
