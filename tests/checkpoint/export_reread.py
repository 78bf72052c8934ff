"""What `gannet checkpoint export` writes, read by the `safetensors` package: the values that the ranks had in memory.

    python3 tests/checkpoint/export_reread.py [--build build] [--python VENV/bin/python] [--dtype fp32]

A GPT-2 is trained at each (stage, tier, ranks), saved, and gathered by the engine into a file of its own; the export of its checkpoint
must hold the same names, shapes and bits. --python is one that has safetensors and numpy. The exit code is 77 where it has not.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parent.parent.parent
SETUPS = [(0, "none", 2), (1, "cpu", 2), (2, "nvme", 4), (3, "none", 4), (3, "nvme", 2)]
COMPARE = """
import pathlib, sys
import numpy
from safetensors.numpy import load_file

def tensors(folder):
    found = {}
    for file in sorted(pathlib.Path(folder).glob("*.safetensors")):
        found.update(load_file(file))
    return found

exported, expected = tensors(sys.argv[1]), tensors(sys.argv[2])
def named(name):
    return name if name in exported else next((one for one in exported if one.endswith("." + name)), None)
if not expected:
    sys.exit("nothing was saved")
for name, tensor in expected.items():
    there = named(name)
    if there is None:
        sys.exit(f"{name} is missing among {sorted(exported)}")
    other = exported[there]
    if other.shape != tensor.shape or other.dtype != tensor.dtype or other.tobytes() != tensor.tobytes():
        sys.exit(f"{name}: {other.dtype} {other.shape} is not {tensor.dtype} {tensor.shape}, or other values")
print(f"{len(expected)} tensors, {sum(tensor.size for tensor in expected.values())} values, bitwise")
"""


def run(command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, **options)
    if done.returncode != 0:
        sys.exit(f"FAILED: exit code {done.returncode} of {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=root / "build")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    args = parser.parse_args()
    if subprocess.run([args.python, "-c", "import numpy, safetensors.numpy"], capture_output=True).returncode != 0:
        print(f"skipped: {args.python} has no safetensors and numpy")
        sys.exit(77)
    gannet, gpt2 = args.build.resolve() / "bin/gannet", args.build.resolve() / "bin/gpt2"
    for stage, tier, ranks in SETUPS:
        with tempfile.TemporaryDirectory(dir=os.getcwd()) as name:
            folder = pathlib.Path(name)
            config, drive = folder / "ds_config.json", folder / "drive"
            drive.mkdir()
            zero = {"stage": stage, "stage3_param_persistence_threshold": 0}
            if tier != "none":
                zero["offload_optimizer"] = {"device": tier, "nvme_path": str(drive)}
                if stage == 3:
                    zero["offload_param"] = {"device": tier, "nvme_path": str(drive), "max_in_cpu": 0}
            settings = {"train_batch_size": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "accelerator": {"type": "cpu"}, "zero_optimization": zero}
            if args.dtype != "fp32":
                settings[args.dtype] = {"enabled": True}
            config.write_text(json.dumps(settings))
            run([gannet, "run", "--num_procs", ranks, "--", gpt2, "--layers", 1, "--width", 32, "--heads", 2, "--seq-len", 32, "--generate", 0, "--threads", 1,
                 "--steps", 3, "--deepspeed_config", config, "--save-checkpoint", folder / "run", "--save-model", folder / "model"])
            run([gannet, "checkpoint", "export", folder / "run", folder / "exported"])
            print(f"stage {stage}, {tier}, {ranks} ranks, {args.dtype}: {run([args.python, '-c', COMPARE, folder / 'exported', folder / 'model']).strip()}", flush=True)


if __name__ == "__main__":
    main()
