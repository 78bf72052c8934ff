"""Trains the same GPT-2 under DeepSpeed and under Gannet and compares what they did, step by step.

    python3 bench/parity/parity.py --peer FOLDER --peer-python VENV/bin/python --work DIR [--only TEXT] [--table bench/parity/README.md]

FOLDER holds the peer's programs (make_model.py, gpt2_peer.py, which trains a Hugging Face GPT-2 under DeepSpeed with the flags
of examples/gpt2); VENV has DeepSpeed 0.19.6, transformers and safetensors. Each case is run once by each program and kept in
DIR: a second call compares again without training again. The bounds are those that Gannet promises: fp32 losses, learning
rates and gradient norms within 2e-5 relative, weights within 1e-5 (2-norm of the whole model), bf16 losses within 5e-3.
"""
import argparse
import itertools
import json
import os
import pathlib
import subprocess
import sys

STEPS, LENGTH, MICRO_BATCH = 20, 128, 2
SCHEDULERS = {
    "WarmupLR": {"warmup_min_lr": 0, "warmup_max_lr": 3e-4, "warmup_num_steps": 8},
    "WarmupDecayLR": {"warmup_min_lr": 0, "warmup_max_lr": 3e-4, "warmup_num_steps": 5, "total_num_steps": 20},
    "WarmupCosineLR": {"warmup_num_steps": 5, "total_num_steps": 20, "warmup_type": "linear"},
    "OneCycle": {"cycle_min_lr": 3e-5, "cycle_max_lr": 3e-4, "cycle_first_step_size": 6, "decay_step_size": 4, "decay_lr_rate": 0.5},
}


def config(optimizer, scheduler, accumulation, bf16):
    # Well-conditioned on purpose (bench/parity/README.md): at lr 1e-3 the loss has spikes that make 1e-7 into 1e-4, between two runs of one
    # program too; and under L2 decay an eps of 1e-8 lets Adam blow the rounding noise of the key biases' gradient, zero in exact
    # arithmetic, up to steps of size lr.
    params = {"lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}
    if optimizer == "Adam":
        params.update(adam_w_mode=False, eps=1e-6)
    result = {
        "train_micro_batch_size_per_gpu": MICRO_BATCH,
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": 1.0,
        "optimizer": {"type": optimizer, "params": params},
        "scheduler": {"type": scheduler, "params": SCHEDULERS[scheduler]},
    }
    if bf16:
        result["bf16"] = {"enabled": True}
    return result


def cases():
    for optimizer, scheduler, ranks, accumulation in itertools.product(("AdamW", "Adam"), SCHEDULERS, (1, 2), (1, 4)):
        yield {"optimizer": optimizer, "scheduler": scheduler, "ranks": ranks, "accumulation": accumulation, "bf16": False, "stage": 0}
    for ranks, accumulation in itertools.product((1, 2), (1, 4)):
        yield {"optimizer": "AdamW", "scheduler": "WarmupLR", "ranks": ranks, "accumulation": accumulation, "bf16": True, "stage": 0}
    for stage, bf16, ranks, accumulation in itertools.product((1, 2), (False, True), (1, 2), (1, 4)):
        yield {"optimizer": "AdamW", "scheduler": "WarmupLR", "ranks": ranks, "accumulation": accumulation, "bf16": bf16, "stage": stage}
    for (stage, offload), bf16, ranks in itertools.product(((3, ""), (2, "cpu"), (3, "cpu"), (3, "nvme")), (False, True), (1, 2)):
        yield {"optimizer": "AdamW", "scheduler": "WarmupLR", "ranks": ranks, "accumulation": 1, "bf16": bf16, "stage": stage, "offload": offload}


def zero_section(case, folder):
    section, tier = {"stage": case["stage"]}, case.get("offload")
    if tier:
        place = {"device": tier} if tier == "cpu" else {"device": tier, "nvme_path": str(folder.resolve())}
        section["offload_optimizer"] = dict(place)
        if case["stage"] == 3:
            section["offload_param"] = dict(place)
    return section


def name_of(case):
    return f"{case['optimizer']}-{case['scheduler']}-r{case['ranks']}-a{case['accumulation']}-{'bf16' if case['bf16'] else 'fp32'}{'-s' + str(case['stage']) if case['stage'] else ''}{'-' + case['offload'] if case.get('offload') else ''}"


def run(command, folder, log):
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    with open(folder / log, "w") as out:
        if subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, env=environment).returncode != 0:
            sys.exit(f"{' '.join(map(str, command))} failed; its words are in {folder / log}")


def train(args, case, side, folder):
    metrics, model = folder / f"{side}.jsonl", folder / f"{side}-model"
    if (model / "model.safetensors").exists():
        return metrics, model
    settings = config(case["optimizer"], case["scheduler"], case["accumulation"], case["bf16"])
    settings["zero_optimization"] = zero_section(case, folder)
    if side == "gannet" and case.get("offload") == "nvme":
        settings["zero_optimization"]["offload_param"]["max_in_cpu"] = 0  # on the drive, small as it is
    if side == "deepspeed" and case["stage"] == 0:  # its stage 0 has no fp32 norm, and its bf16 takes a step with zero gradients while it is built
        settings["zero_optimization"] = {"stage": 1}
    file = folder / f"{side}.json"
    file.write_text(json.dumps(settings, indent=2))
    flags = ["--model", args.work / "model", "--tokens", args.work / "tokens.bin", "--seq-len", LENGTH, "--steps", STEPS,
             "--deepspeed_config", file, "--metrics", metrics, "--save-model", model]
    if side == "deepspeed":
        torchrun = pathlib.Path(args.peer_python).parent / "torchrun"
        command = [torchrun, "--nproc-per-node", case["ranks"], "--master-port", "29611", args.peer / "gpt2_peer.py", *flags]
    else:
        command = [args.build / "bin/gannet", "run", "--num_procs", case["ranks"], args.build / "bin/gpt2", *flags]
    run([str(word) for word in command], folder, f"{side}.log")
    return metrics, model


def largest(left, right, key):
    worst = 0.0
    for a, b in zip(left, right):
        x, y = float(a[key]), float(b[key])
        worst = max(worst, abs(x - y) / max(abs(x), abs(y), 1e-12))
    return worst


def weights_apart(python, left, right):
    code = ("import sys; from safetensors.torch import load_file; a, b = (load_file(f'{d}/model.safetensors') for d in sys.argv[1:]);"
            "a = {k.removeprefix('transformer.'): v for k, v in a.items() if k != 'lm_head.weight'};"
            "b = {k.removeprefix('transformer.'): v for k, v in b.items() if k != 'lm_head.weight'};"
            "assert set(a) == set(b), sorted(set(a) ^ set(b));"
            "d = sum((a[k].double() - b[k].double()).square().sum().item() for k in a); n = sum(a[k].double().square().sum().item() for k in a);"
            "print((d / n) ** 0.5)")
    return float(subprocess.run([python, "-c", code, left, right], check=True, capture_output=True, text=True).stdout)


# Between <!-- name --> and <!-- /name -->, in place of what stands there.
def write_table(path, name, columns, rows):
    text, begin, end = path.read_text(), f"<!-- {name} -->", f"<!-- /{name} -->"
    head = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    path.write_text(text.split(begin)[0] + "\n".join([begin, *head, *rows, end]) + text.split(end)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=pathlib.Path, required=True)
    parser.add_argument("--peer-python", required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--only", default="")
    parser.add_argument("--side", choices=("deepspeed", "gannet", "both"), default="both")
    parser.add_argument("--table", type=pathlib.Path)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    if not (args.work / "model").exists():
        run([args.peer_python, str(args.peer / "make_model.py"), str(args.work / "model"), "--layers", "4", "--width", "256", "--heads", "4",
             "--vocab", "256", "--positions", "128", "--seed", "7"], args.work, "make_model.log")
    if not (args.work / "tokens.bin").exists():
        texts = sorted(path for path in pathlib.Path("/usr/share/common-licenses").iterdir() if path.is_file() and not path.is_symlink())
        (args.work / "tokens.bin").write_bytes(b"".join(path.read_bytes() for path in texts))

    rows, failed = [], False
    for case in cases():
        name = name_of(case)
        if args.only not in name:
            continue
        folder = args.work / name
        folder.mkdir(exist_ok=True)
        sides = {side: train(args, case, side, folder) for side in ("deepspeed", "gannet") if args.side in (side, "both")}
        if len(sides) < 2:
            continue
        theirs, ours = ([json.loads(line) for line in open(sides[side][0])] for side in ("deepspeed", "gannet"))
        assert len(theirs) == len(ours) == STEPS, f"{name}: {len(theirs)} and {len(ours)} steps"
        loss, lr, norm = (largest(theirs, ours, key) for key in ("loss", "lr", "grad_norm"))
        weights = weights_apart(args.peer_python, sides["deepspeed"][1], sides["gannet"][1])
        good = loss <= 5e-3 if case["bf16"] else max(loss, lr, norm) <= 2e-5 and weights <= 1e-5
        failed |= not good
        rows.append(f"| {case['stage']}{' ' + case['offload'] if case.get('offload') else ''} | {case['optimizer']} | {case['scheduler']} | {'bf16' if case['bf16'] else 'fp32'} | {case['ranks']} | {case['accumulation']} "
                    f"| {loss:.1e} | {lr:.1e} | {norm:.1e} | {weights:.1e} | {'yes' if good else '**no**'} |")
        print(rows[-1], flush=True)
    if args.table and rows:
        write_table(args.table, "table", ["stage", "optimizer", "scheduler", "dtype", "ranks", "accumulation", "loss", "lr", "gradient norm", "weights", "within bounds"], rows)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
