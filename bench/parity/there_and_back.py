"""DeepSpeed trains, Gannet continues, and DeepSpeed continues from what Gannet exported; beside it, DeepSpeed alone.

    python3 bench/parity/there_and_back.py --peer FOLDER --peer-python VENV/bin/python --work DIR [--only TEXT] [--table docs/parity.md]

FOLDER and VENV are those of parity.py. A case: 10 steps under DeepSpeed, `gannet checkpoint import`, 10 steps by examples/gpt2,
`gannet checkpoint export --format universal` or `deepspeed`, 10 steps under DeepSpeed. Compared with 30 steps of DeepSpeed: the
losses, and at the end the masters and moments of the whole model (2-norm, relative). What DeepSpeed holds right after the load
is saved by DeepSpeed and imported: it must be what Gannet saved, bit for bit, with its step, rate, samples and loss scale.
"""
import array
import itertools
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys

import continuation
from continuation import LENGTH, MICRO_BATCH, STEPS, arguments_of, chosen_cases, words
from parity import largest, run, write_table

BOUNDS = {"fp32": 2e-5, "bf16": 5e-3, "fp16": 5e-3}
FORMATS = ("universal", "deepspeed")
KINDS = ("parameter/", "state/exp_avg/", "state/exp_avg_sq/")


def cases():
    for dtype, stage, ranks in itertools.product(("fp32", "bf16"), (1, 2, 3), (1, 2)):
        yield {"stage": stage, "ranks": ranks, "dtype": dtype}
    for stage, ranks in itertools.product((1, 2), (1, 2)):  # the loss scale
        yield {"stage": stage, "ranks": ranks, "dtype": "fp16"}
    # Without fp16: there DeepSpeed's stage 0 divides gradients by the loss scale twice, and its moments are that much smaller.
    for dtype, ranks in itertools.product(("fp32", "bf16"), (1, 2)):
        yield {"stage": 0, "ranks": ranks, "dtype": dtype}


def name_of(case):
    return f"{case['dtype']}-s{case['stage']}-r{case['ranks']}"


def formats_of(case):
    return FORMATS if case["stage"] else ("deepspeed",)  # a universal checkpoint is for ZeRO


def settings_of(case, universal=False):
    settings = continuation.config(case["dtype"], case["stage"], "", 1.0)
    if universal:
        settings["checkpoint"] = {"load_universal": True}
    return settings


def flags(args, settings, folder, side, steps):
    file = folder / f"{side}.json"
    file.write_text(json.dumps(settings, indent=2))
    (folder / f"{side}.jsonl").unlink(missing_ok=True)
    return ["--model", args.work / "model", "--tokens", args.work / "tokens.bin", "--seq-len", LENGTH, "--steps", steps,
            "--deepspeed_config", file, "--metrics", folder / f"{side}.jsonl"]


def under_deepspeed(args, case, folder, side, steps, *more, universal=False, loaded=None):
    torchrun = pathlib.Path(args.peer_python).parent / "torchrun"
    start = [torchrun, "--nproc-per-node", case["ranks"], "--master-port", "29618", pathlib.Path(__file__).resolve(), "--as-peer",
             args.peer / "gpt2_peer.py", loaded or "-"]
    run(words([*start, *flags(args, settings_of(case, universal), folder, side, steps), *more]), folder, f"{side}.log")


def under_gannet(args, case, folder):
    gannet = args.build / "bin/gannet"
    for made in ("imported", "ours"):
        shutil.rmtree(folder / made, ignore_errors=True)
    run(words([gannet, "checkpoint", "import", folder / "before", folder / "imported"]), folder, "import.log")
    run(words([gannet, "run", "--num_procs", case["ranks"], args.build / "bin/gpt2",
               *flags(args, settings_of(case), folder, "ours", STEPS), "--plain-operators", "--load-checkpoint", folder / "imported",
               "--save-checkpoint", folder / "ours"]), folder, "ours.log")


def exported(args, case, folder, form):
    out = folder / f"to-{form}"
    shutil.rmtree(out, ignore_errors=True)
    place = [] if form == "universal" else ["--stage", case["stage"], "--ranks", case["ranks"]]
    run(words([args.build / "bin/gannet", "checkpoint", "export", folder / "ours", out, "--format", form, *place,
               "--tied", "lm_head.weight=transformer.wte.weight"]), folder, f"export-{form}.log")
    return out


def tensors_of(folder):
    """The tensors of a Gannet checkpoint, by name, as bytes."""
    tag = (folder / "latest").read_text().split("\n")[0]
    parts = {}
    for file in sorted((folder / tag).glob("rank-*.safetensors")):
        content = file.read_bytes()
        length = int.from_bytes(content[:8], "little")
        for name, entry in json.loads(content[8:8 + length]).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                whole, _, offset = name.partition("#")
                parts.setdefault(whole, []).append((int(offset or 0), content[8 + length + begin:8 + length + end]))
    return {name: b"".join(part for _, part in sorted(pieces)) for name, pieces in parts.items()}


def numbers_of(args, folder):
    """What a checkpoint says besides its tensors."""
    shown = subprocess.run(words([args.build / "bin/gannet", "checkpoint", "show", folder, "--json"]), capture_output=True, text=True, check=True)
    document = json.loads(shown.stdout)["document"]
    scaler = document["loss_scaler"]
    return {key: document[key] for key in ("global_steps", "applied_steps", "skipped_steps", "global_samples", "schedule_position")} | {
        "hyper": [{k: v for k, v in group["hyper"].items() if k in ("lr", "betas[0]", "betas[1]", "weight_decay")} for group in document["groups"]],
        "scaler": scaler if scaler["precision"] == "fp16" else {}}


def imported(args, folder, name):
    out = folder / f"{name}-imported"
    shutil.rmtree(out, ignore_errors=True)
    run(words([args.build / "bin/gannet", "checkpoint", "import", folder / name, out]), folder, f"{name}-import.log")
    return out


def distance(one, other):
    """The relative 2-norm of the difference of the whole model's tensors, of each kind."""
    result = []
    for kind in KINDS:
        square = total = 0.0
        for name in one:
            if name.startswith(kind):
                a, b = array.array("f", one[name]), array.array("f", other[name])
                square += math.fsum((x - y) ** 2 for x, y in zip(a, b, strict=True))
                total += math.fsum(x * x for x in a)
        result.append(math.sqrt(square / total))
    return result


def faults_after_load(args, case, folder, form):
    """"": DeepSpeed holds what Gannet saved."""
    ours, held = tensors_of(folder / "ours"), tensors_of(imported(args, folder, f"{form}-loaded"))
    faults = [name for name in ours if name.startswith(KINDS) and held.get(name) != ours[name]]
    mine, theirs = numbers_of(args, folder / "ours"), numbers_of(args, folder / f"{form}-loaded-imported")
    for side in (mine, theirs):
        side["scaler"].pop("dynamic", None)
        if case["stage"] == 0:
            side["scaler"].pop("hysteresis_left", None)  # which stage 0 does not hold
    return faults + [f"{key}: {mine[key]} and {theirs[key]}" for key in mine if mine[key] != theirs[key]]


def lines_of(file):
    return [json.loads(line) for line in open(file)]


def as_peer(script, loaded, arguments):
    """The peer, which saves what it has right after a load into the folder `loaded`."""
    os.environ["DS_ACCELERATOR"] = "cpu"
    from deepspeed.runtime.engine import DeepSpeedEngine

    load = DeepSpeedEngine.load_checkpoint

    def load_and_save(self, folder, *more, **named):
        result = load(self, folder, *more, **named)
        assert result[0] is not None, f"nothing was loaded from {folder}"
        self.save_checkpoint(loaded)
        return result

    if loaded != "-":
        DeepSpeedEngine.load_checkpoint = load_and_save
    continuation.as_peer(script, arguments)


def main():
    args = arguments_of(__doc__)
    rows, failed = [], False
    for case, name, folder in chosen_cases(args, cases(), name_of):
        for side, steps in (("alone", 3 * STEPS), ("before", STEPS)):
            if not (folder / side / "latest").exists():
                under_deepspeed(args, case, folder, side, steps, "--save-checkpoint", folder / side)
        if args.side == "deepspeed":
            print(name, flush=True)
            continue
        under_gannet(args, case, folder)
        alone, end = lines_of(folder / "alone.jsonl"), tensors_of(imported(args, folder, "alone"))
        middle = largest(alone[STEPS:2 * STEPS], lines_of(folder / "ours.jsonl"), "loss")
        for form in formats_of(case):
            for made in (f"{form}-loaded", f"{form}-end"):
                shutil.rmtree(folder / made, ignore_errors=True)
            under_deepspeed(args, case, folder, form, STEPS, "--load-checkpoint", exported(args, case, folder, form),
                            "--save-checkpoint", folder / f"{form}-end", universal=form == "universal", loaded=folder / f"{form}-loaded")
            faults = faults_after_load(args, case, folder, form)
            back = lines_of(folder / f"{form}.jsonl")
            assert [line["step"] for line in back] == [line["step"] for line in alone[2 * STEPS:]], "other steps"
            assert all(a[key] == b[key] for a, b in zip(alone[2 * STEPS:], back) for key in ("skipped", "loss_scale")), "another loss scale"
            loss, rate = largest(alone[2 * STEPS:], back, "loss"), largest(alone[2 * STEPS:], back, "lr")
            masters, first, second = distance(end, tensors_of(imported(args, folder, f"{form}-end")))
            good = max(middle, loss, rate) <= BOUNDS[case["dtype"]] and not faults
            failed |= not good
            rows.append(f"| {form} | {case['stage']} | {case['ranks']} | {case['dtype']} | {middle:.1e} | {loss:.1e} | {rate:.1e} | "
                        f"{'equal' if not faults else 'differ'} | {masters:.1e} | {first:.1e} | {second:.1e} | {'yes' if good else 'no'} |")
            print(rows[-1], *faults[:4], flush=True)
    if args.table and rows:
        write_table(args.table, "there_and_back", ["format", "stage", "ranks", "dtype", "Gannet's loss", "DeepSpeed's loss afterwards", "lr", "state after the load",
                                                   "masters at the end", "first moments", "second moments", "within the bound"], rows)
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--as-peer"]:
        as_peer(sys.argv[2], sys.argv[3], sys.argv[4:])
    else:
        sys.exit(main())
