"""PyTorch itself reads what the writer writes, with equal bits: files of torch.save go in and come out, and are compared.

    python3 check_with_torch.py GANNET [--large] [FILE.pt...]        with a Python that has torch; the suite does without

Each FILE is a state dict; without one, files of every dtype that a checkpoint holds, of views and shared storages, in both of PyTorch's
formats, and with --large one whose tensors lie beyond 4 GiB. It is imported (`checkpoint import`), exported (`checkpoint export --format pt`), whole and in shards, and read by
torch.load(weights_only=True).
"""
import pathlib
import subprocess
import sys
import tempfile

import torch

GANNET, LARGE, FILES = sys.argv[1], "--large" in sys.argv, [one for one in sys.argv[2:] if one != "--large"]


def made(folder):
    torch.manual_seed(1)
    state = {str(dtype): torch.randn(7, 5).to(dtype) for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16)}
    state |= {str(dtype): torch.randint(0, 100, (3, 4)).to(dtype) for dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)}
    base = torch.randn(6, 8)
    state |= {"bool": torch.rand(9) > 0.5, "scalar": torch.tensor(2.5), "empty": torch.empty(0, 3), "base": base, "transposed": base.t(), "row": base[2]}
    torch.save(state, folder / "zip.pt")
    torch.save(state, folder / "legacy.pt", _use_new_zipfile_serialization=False)
    files = [folder / "zip.pt", folder / "legacy.pt"]
    if LARGE:  # an entry of more than 4 GiB, and one that begins beyond them
        torch.save({"large": torch.arange(2**30 + 1000, dtype=torch.int32), "after": torch.randn(1000)}, folder / "large.pt")
        files.append(folder / "large.pt")
    return files


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


def check(file):
    expected = state_dict(torch.load(file, weights_only=True))
    with tempfile.TemporaryDirectory(dir=".") as folder:
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


with tempfile.TemporaryDirectory(dir=".") as name:
    for file in FILES or made(pathlib.Path(name)):
        check(file)
