"""Trains a GPT-2 under DeepSpeed, imports the checkpoint it wrote, and goes on from it under DeepSpeed and under Gannet.

    python3 bench/parity/continuation.py --peer FOLDER --peer-python VENV/bin/python --work DIR [--only TEXT] [--table bench/parity/README.md]

FOLDER and VENV are those of parity.py. A case: 10 steps under DeepSpeed, save_checkpoint; 10 more by DeepSpeed from that folder,
and 10 by examples/gpt2 from what `gannet checkpoint import` made of it. What DeepSpeed did is kept in DIR and not done again.
"""
import argparse
import itertools
import json
import pathlib
import shutil
import sys

from parity import largest, run, write_table

STEPS, LENGTH, MICRO_BATCH = 10, 64, 2
BOUND = 2e-5


# then: the dtype in which both resume. Two programs' bf16 forwards round differently, which hides what an import loses or not:
# a bf16 run's masters and moments are compared where both resume from them in fp32 (which DeepSpeed cannot at stage 0).
def cases():
    for dtype, stage, ranks in itertools.product(("fp32", "bf16"), range(4), (1, 2)):
        yield {"stage": stage, "ranks": ranks, "dtype": dtype, "then": dtype, "offload": ""}
    for stage, ranks in itertools.product((1, 2, 3), (1, 2)):
        yield {"stage": stage, "ranks": ranks, "dtype": "bf16", "then": "fp32", "offload": ""}
    for ranks in (1, 2):
        yield {"stage": 1, "ranks": ranks, "dtype": "fp16", "then": "fp16", "offload": ""}
    for stage in (2, 3):
        yield {"stage": stage, "ranks": 2, "dtype": "fp32", "then": "fp32", "offload": "cpu"}
    for stage, ranks in itertools.product(range(4), (1, 2)):  # no norm, so no rounding of it, comes into the update
        yield {"stage": stage, "ranks": ranks, "dtype": "bf16", "then": "bf16", "offload": "", "clipping": 0}


# Where Gannet goes on otherwise than DeepSpeed stopped: (stage, ranks, offload)
ELSEWHERE = [("fp32-s3-r2", 0, 1, ""), ("fp32-s0-r1", 3, 2, "cpu"), ("fp32-s2-r2", 1, 1, "cpu")]


def name_of(case):
    then = "" if case["then"] == case["dtype"] else "-then-" + case["then"]
    return f"{case['dtype']}-s{case['stage']}-r{case['ranks']}{'-' + case['offload'] if case['offload'] else ''}{then}{'' if case.get('clipping', 1) else '-unclipped'}"


def config(dtype, stage, offload, clipping):
    zero = {"stage": stage}
    if offload:
        zero["offload_optimizer"] = {"device": offload}
        if stage == 3:
            zero["offload_param"] = {"device": offload}
    result = {
        "train_micro_batch_size_per_gpu": MICRO_BATCH,
        "gradient_clipping": clipping,
        "zero_optimization": zero,
        "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}},
        "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 3e-4, "warmup_num_steps": 5, "total_num_steps": 40}},
    }
    if dtype == "bf16":
        result["bf16"] = {"enabled": True}
    if dtype == "fp16":  # doubles twice on the way; far below an overflow, which the least difference in rounding would decide
        result["fp16"] = {"enabled": True, "initial_scale_power": 12, "loss_scale_window": 6}
    return result


def flags(args, settings, folder, side, ranks):
    file = folder / f"{side}.json"
    file.write_text(json.dumps(settings, indent=2))
    return ["--model", args.work / "model", "--tokens", args.work / "tokens.bin", "--seq-len", LENGTH, "--steps", STEPS,
            "--deepspeed_config", file, "--metrics", folder / f"{side}.jsonl"]


def words(parts):
    return [str(part) for part in parts]


def train_under_deepspeed(args, case, folder):
    torchrun = pathlib.Path(args.peer_python).parent / "torchrun"
    settings = config(case["dtype"], case["stage"], case["offload"], case.get("clipping", 1.0))
    start = [torchrun, "--nproc-per-node", case["ranks"], "--master-port", "29617", pathlib.Path(__file__).resolve(), "--as-peer", args.peer / "gpt2_peer.py"]
    if not (folder / "deepspeed" / "latest").exists():
        run(words([*start, *flags(args, settings, folder, "before", case["ranks"]), "--save-checkpoint", folder / "deepspeed"]), folder, "before.log")
    if not (folder / "theirs-model").exists():
        settings, source = config(case["then"], case["stage"], case["offload"], case.get("clipping", 1.0)), folder / "deepspeed"
        if case["then"] != case["dtype"]:  # a run in fp32 looks for the ranks' files under their fp32 names
            source = folder / "deepspeed-in-fp32"
            shutil.copytree(folder / "deepspeed", source, dirs_exist_ok=True)
            for file in source.glob("*/bf16_zero_*"):
                file.rename(file.with_name(file.name.removeprefix("bf16_")))
            run(words([args.peer_python, pathlib.Path(__file__).resolve(), "--masters-into-model", source]), folder, "masters.log")
        run(words([*start, *flags(args, settings, folder, "theirs", case["ranks"]), "--load-checkpoint", source,
                   "--save-model", folder / "theirs-model"]), folder, "theirs.log")


def go_on_under_gannet(args, case, folder, side, stage, ranks, offload):
    shutil.rmtree(folder / "imported", ignore_errors=True)
    (folder / f"{side}.jsonl").unlink(missing_ok=True)  # it would be continued
    gannet = args.build / "bin/gannet"
    run(words([gannet, "checkpoint", "import", folder / "deepspeed", folder / "imported"]), folder, "import.log")
    settings = config(case["then"], stage, offload, case.get("clipping", 1.0))
    settings["train_micro_batch_size_per_gpu"] = MICRO_BATCH * case["ranks"] // ranks  # the same samples in a step
    run(words([gannet, "run", "--num_procs", ranks, args.build / "bin/gpt2", *flags(args, settings, folder, side, ranks),
               "--plain-operators", "--load-checkpoint", folder / "imported"]), folder, f"{side}.log")
    return [json.loads(line) for line in open(folder / f"{side}.jsonl")]


# DeepSpeed refuses fp16 on this CPU though PyTorch computes it, and transformers' construction under zero.Init loads other weights
# than the file's on 2 ranks: the peer runs without that check, and with a model that is built whole.
def as_peer(script, arguments):
    import os
    import runpy

    os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed
    import transformers.integrations

    type(deepspeed.accelerator.get_accelerator()).is_fp16_supported = lambda self: True
    transformers.integrations.HfDeepSpeedConfig = lambda config: None
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


# Loading at stages 1 and 2 leaves the model's own weights as the 16-bit file has them until the next update: they become the masters.
def masters_into_model(folder):
    import os

    os.environ["DS_ACCELERATOR"] = "cpu"
    import torch
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    masters = get_fp32_state_dict_from_zero_checkpoint(folder)
    for file in pathlib.Path(folder).glob("*/mp_rank_00_model_states.pt"):
        saved = torch.load(file, weights_only=False)
        saved["module"] = {name: masters[name] for name in saved["module"]}
        torch.save(saved, file)


def compared(theirs, ours):
    assert len(theirs) == len(ours) == STEPS, f"{len(theirs)} and {len(ours)} steps"
    assert [line["step"] for line in theirs] == [line["step"] for line in ours], "other steps"
    assert [line["skipped"] for line in theirs] == [line["skipped"] for line in ours], "other steps were skipped"
    applied = [pair for pair in zip(theirs, ours) if not pair[0]["skipped"]]  # a step that overflowed has no norm
    norm = None
    if all(line["grad_norm"] is not None for line, _ in applied):
        norm = largest([line for line, _ in applied], [line for _, line in applied], "grad_norm")
    return largest(theirs[:1], ours[:1], "loss"), largest(theirs, ours, "loss"), largest(theirs, ours, "lr"), norm


def make_model_and_tokens(args):
    if not (args.work / "model").exists():
        run(words([args.peer_python, args.peer / "make_model.py", args.work / "model", "--layers", 2, "--width", 64, "--heads", 4,
                   "--vocab", 256, "--positions", 128, "--seed", 7]), args.work, "make_model.log")
    if not (args.work / "tokens.bin").exists():
        texts = sorted(path for path in pathlib.Path("/usr/share/common-licenses").iterdir() if path.is_file() and not path.is_symlink())
        (args.work / "tokens.bin").write_bytes(b"".join(path.read_bytes() for path in texts))


def arguments_of(description):
    """The command line of this script and of there_and_back.py; makes the folder to work in, with the model and its text."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=pathlib.Path, required=True)
    parser.add_argument("--peer-python", required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--only", default="")
    parser.add_argument("--side", choices=("deepspeed", "both"), default="both")
    parser.add_argument("--table", type=pathlib.Path)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    make_model_and_tokens(args)
    return args


def chosen_cases(args, cases, name_of):
    """Each case that --only selects, with its name and its folder."""
    for case in cases:
        name = name_of(case)
        if args.only in name:
            folder = args.work / name
            folder.mkdir(exist_ok=True)
            yield case, name, folder


def main():
    args = arguments_of(__doc__)
    rows, failed = [], False
    for case, name, folder in chosen_cases(args, cases(), name_of):
        train_under_deepspeed(args, case, folder)
        if args.side == "deepspeed":
            print(name, flush=True)
            continue
        theirs = [json.loads(line) for line in open(folder / "theirs.jsonl")]
        places = [(case["stage"], case["ranks"], case["offload"])] + [place for start, *place in ELSEWHERE if start == name]
        for number, (stage, ranks, offload) in enumerate(places):
            ours = go_on_under_gannet(args, case, folder, "ours" + (str(number) if number else ""), stage, ranks, offload)
            first, loss, lr, norm = compared(theirs, ours)
            # The norm of 16-bit gradients moves with every bit of a 16-bit weight: shown, not judged.
            good = max(loss, lr, norm if norm and case["then"] == "fp32" else 0) <= BOUND
            failed |= not good and case["then"] == "fp32"
            went_on = "the same" if number == 0 else f"stage {stage} {offload}".strip() + f", {ranks} rank{'s' if ranks > 1 else ''}"
            if case["then"] != case["dtype"]:
                went_on = case["then"]
            if not case.get("clipping", 1):
                went_on += ", no clipping"
            rows.append(f"| {case['stage']}{' ' + case['offload'] if case['offload'] else ''} | {case['ranks']} | {case['dtype']} | {went_on} "
                        f"| {first:.1e} | {loss:.1e} | {lr:.1e} | {'-' if norm is None else f'{norm:.1e}'} | {'yes' if good else 'no'} |")
            print(rows[-1], flush=True)
    if args.table and rows:
        write_table(args.table, "continuation", ["stage", "ranks", "dtype", "both resume in, Gannet at", "first loss", "loss", "lr", "gradient norm", "within 2e-5"], rows)
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--as-peer"]:
        as_peer(sys.argv[2], sys.argv[3:])
    elif sys.argv[1:2] == ["--masters-into-model"]:
        masters_into_model(sys.argv[2])
    else:
        sys.exit(main())
