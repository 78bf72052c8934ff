"""PyTorch itself reads what the writer writes, with equal bits: files of torch.save go in and come out, and are compared.

    python3 check_with_torch.py GANNET FILE.pt...        with a Python that has torch; the suite does without

Each FILE is a state dict. It is imported (`checkpoint import`), exported (`checkpoint export --format pt`), whole and in shards, and read by
torch.load(weights_only=True).
"""
import pathlib
import subprocess
import sys
import tempfile

import torch

GANNET, FILES = sys.argv[1], sys.argv[2:]


def gannet(*arguments):
    done = subprocess.run([GANNET, "checkpoint", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"gannet checkpoint {' '.join(map(str, arguments))}:\n{done.stdout}{done.stderr}")


def state_dict(values):
    for key in ("module", "model", "state_dict", "model_state_dict"):
        if isinstance(values.get(key), dict):
            values = values[key]
    return {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}


def bits(tensor):
    return tensor.detach().contiguous().flatten().view(torch.uint8) if tensor.numel() else torch.empty(0)


for file in FILES:
    expected = state_dict(torch.load(file, weights_only=True))
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        gannet("import", file, folder / "run")
        for name, options in (("whole", []), ("shards", ["--max-shard-size", "1KB"])):
            gannet("export", folder / "run", folder / name, "--format", "pt", *options)
            found = {}
            for shard in sorted((folder / name).glob("*.bin")):
                found.update(torch.load(shard, weights_only=True))
            for key, value in expected.items():
                if key not in found or found[key].dtype != value.dtype or found[key].shape != value.shape or not torch.equal(bits(found[key]), bits(value)):
                    sys.exit(f"{file}: '{key}' is not what it was ({name})")
    print(f"{file}: {len(expected)} tensors, equal bits")
