"""Whether Python reads what `gannet checkpoint export` writes: transformers' from_pretrained and torch.load(weights_only=True).

    python3 bench/parity/exports.py --peer-python VENV/bin/python --work DIR [--build build]

DIR is continuation.py's, which left a checkpoint of DeepSpeed and its import there (fp32, stage 0, 1 rank). That is exported in
each format and read by Python, and every tensor is compared, bit for bit, with the one in DeepSpeed's own file.
"""
import argparse
import pathlib
import shutil
import subprocess
import sys

FORMATS = {"safetensors": "model.safetensors", "pt": "pytorch_model.bin"}


def in_python(source, folder):
    import torch
    from transformers import GPT2LMHeadModel

    wanted = torch.load(source, weights_only=False)["module"]
    read = {"from_pretrained": GPT2LMHeadModel.from_pretrained(folder, dtype=torch.float32).state_dict()}
    for file in pathlib.Path(folder).glob("*.bin"):
        read["torch.load(weights_only=True)"] = torch.load(file, weights_only=True)
    for how, tensors in read.items():
        names = set(wanted) if how == "from_pretrained" else set(wanted) - {"lm_head.weight"}  # tied: stored once
        assert set(tensors) == names, sorted(set(tensors) ^ names)
        for name in names:
            left, right = tensors[name].contiguous(), wanted[name].contiguous()
            assert left.dtype == right.dtype and left.shape == right.shape, name
            assert torch.equal(left.view(torch.uint8), right.view(torch.uint8)), f"{how}: {name} has other bits"
        print(f"{how}: {len(names)} tensors, every bit the same")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    args = parser.parse_args()
    case = args.work / "fp32-s0-r1"
    for name, file in FORMATS.items():
        out = case / f"exported-{name}"
        shutil.rmtree(out, ignore_errors=True)
        subprocess.run([args.build / "bin/gannet", "checkpoint", "export", case / "imported", out, "--format", name], check=True, stdout=subprocess.DEVNULL)
        assert (out / file).exists(), f"{file} was not written"
        shutil.copy(args.work / "model/config.json", out)
        print(name, flush=True)
        source = next((case / "deepspeed").glob("*/mp_rank_00_model_states.pt"))
        subprocess.run([args.peer_python, __file__, "--in-python", source, out], check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--in-python"]:
        in_python(*sys.argv[2:])
    else:
        sys.exit(main())
