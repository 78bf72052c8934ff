"""The configs of examples/configs: each is right, trains a tiny GPT-2, says what it is for, and stands once in docs/recipes.md.
Those with BERT's names in their groups get others for it; tests/models trains a BERT by the one for encoders. Those for several GPUs say, in the file and by
`config check`, that these cannot run yet, and train on CPUs.

    python3 recipes_test.py GANNET GPT2 SOURCE_FOLDER
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

GANNET, GPT2, SOURCE = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
CONFIGS = sorted((SOURCE / "examples/configs").glob("*.json"))
TINY = ["--layers", "1", "--width", "32", "--heads", "2", "--seq-len", "16", "--generate", "0", "--threads", "1"]
DRIVE = ("zero_optimization.offload_optimizer.nvme_path", "zero_optimization.offload_param.nvme_path")
CANNOT_TRAIN = {"evaluate_a_large_model": "there is no optimizer"}
GROUPS = 'optimizer.param_groups=[{"match": "*.bias", "weight_decay": 0}]'  # the names are those of another model
ON_CPU = ("--set", "accelerator.type=cpu")


def fail(message):
    sys.exit(f"FAILED: {message}")


def run(*command, folder):
    return subprocess.run([str(word) for word in command], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=300)


def needs_gpus(file):
    return '"accelerator": {"type": "cuda"}' in file.read_text()


def check(file, folder):
    if needs_gpus(file):
        done = run(GANNET, "config", "check", file, "--world-size", 8, folder=folder)
        reasons = ("no Comm plugin here moves its memory", "'cuda'", "'nccl'")  # no device here; no CUDA plugin; no NCCL plugin
        if not any(reason in done.stdout for reason in reasons) or "nccl, which has run on a test double alone" not in file.read_text():
            fail(f"{file.name} does not say what has run: {done.stdout}")
    done = run(GANNET, "config", "check", file, *(ON_CPU if needs_gpus(file) else ()), folder=folder)
    if done.returncode != 0:
        fail(f"{file.name}: {done.stdout}")
    if not file.read_text().startswith("// "):
        fail(f"{file.name} does not begin with what it is for")


def train(file, folder, ranks):
    overrides = []
    if needs_gpus(file):
        overrides += ON_CPU
    if "LayerNorm" in file.read_text():
        overrides += ["--set", GROUPS]
    if "/mnt/nvme" in file.read_text():
        for key in DRIVE:
            overrides += ["--set", f"{key}={folder}"]
    launch = (GANNET, "run", "--num_procs", ranks) if ranks > 1 else ()
    done = run(*launch, GPT2, *TINY, "--steps", 2, "--deepspeed_config", file, *overrides, folder=folder)
    reason = CANNOT_TRAIN.get(file.stem)
    if (done.returncode == 0) != (reason is None) or (reason and reason not in done.stdout):
        fail(f"{file.name} on {ranks}: exit code {done.returncode}\n{done.stdout}")


def main():
    listed = re.findall(r"\((?:\.\./)?examples/configs/(\w+)\.json\)", (SOURCE / "docs/recipes.md").read_text())
    if sorted(listed) != [file.stem for file in CONFIGS]:
        fail(f"docs/recipes.md and examples/configs differ: {sorted(set(listed) ^ {file.stem for file in CONFIGS})}")
    if len(CONFIGS) < 25:
        fail(f"{len(CONFIGS)} configs")
    for file in CONFIGS:
        for ranks in (1, 2) if os.environ.get("GANNET_TEST_FULL") else (1,):
            with tempfile.TemporaryDirectory() as name:
                check(file, name)
                train(file, name, ranks)
    print(f"{len(CONFIGS)} configs")


main()
