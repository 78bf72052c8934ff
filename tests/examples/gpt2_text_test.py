"""The example writes its text on every rank, at every ZeRO stage; and it says which "auto" it took as a default.

    python3 gpt2_text_test.py GANNET GPT2
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

GANNET, GPT2 = sys.argv[1:3]
TINY = ["--layers", 1, "--width", 32, "--heads", 2, "--seq-len", 32, "--steps", 3, "--validation-fraction", 0, "--threads", 1]


def fail(message):
    sys.exit(f"FAILED: {message}")


def texts(folder, stage, ranks, *options, **members):
    """The text of each rank. The launcher passes lines on as they arrive, so those of one rank may stand between another's."""
    zero = {"stage": stage, "stage3_param_persistence_threshold": 0} if stage == 3 else {"stage": stage}
    if ranks == 1 and stage == 3:
        zero["offload_param"] = {"device": "cpu"}
    config = {"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": "auto"}, "zero_optimization": zero,
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}}, **members}
    file = folder / "ds_config.json"
    file.write_text(json.dumps(config))
    command = [GANNET, "run", "--num_procs", ranks, GPT2, *TINY, "--generate", 40, *options, "--deepspeed_config", file]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300)
    said = done.stdout + done.stderr
    if done.returncode != 0:
        fail(f"stage {stage}, {ranks} processes: exit code {done.returncode}\n{said}")
    if said.count('"auto" taken as its default: bf16.enabled = false') != 1:
        fail(f"stage {stage}, {ranks} processes: the auto that became a default is not said once\n{said}")
    of_rank = {}
    for line in done.stdout.splitlines():
        rank, text = re.match(r"(?:\[(\d+)\] ?)?(.*)", line).groups()
        of_rank.setdefault(rank or "", []).append(text)
    heads, written = [], []
    for rank in sorted(of_rank):
        parts = re.split(r"^text (?:that rank (\d+)|it) wrote:\n", "\n".join(of_rank[rank]), flags=re.M)
        heads += parts[1::2]
        written += parts[2::2]
    return heads, written


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for ranks in (1, 2):
            of_stage = {}
            for stage in (0, 1, 2, 3):
                heads, written = texts(folder, stage, ranks)
                if heads != ([None] if ranks == 1 else ["0", "1"]):
                    fail(f"stage {stage}, {ranks} processes: texts of {heads}")
                if any(len(text) < 30 for text in written) or len(set(written)) != ranks:
                    fail(f"stage {stage}, {ranks} processes: {written}")
                of_stage[stage] = written
            # In fp32 a step is the same at each stage but for the order of sums: so are three steps' draws.
            if any(written != of_stage[0] for written in of_stage.values()):
                fail(f"{ranks} processes: the stages wrote different texts: {of_stage}")
            print(f"{ranks} processes: one text each at stages 0 to 3", flush=True)
        _, (first, second) = texts(folder, 3, 2, "--prompt", "The ", "--prompt", "A license")
        if not first.startswith("The ") or not second.startswith("A license"):
            fail(f"prompts: {first!r}, {second!r}")
        print("a prompt for each rank", flush=True)


if __name__ == "__main__":
    main()
