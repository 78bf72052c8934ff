"""Runs that are killed in the middle of a save go on as if nothing had happened, bit by bit.

    python3 resume_test.py GANNET GPT2 CNN FAULTY_IO CNN_BF16_CONFIG [KILLS]

1. 40 steps equal 20 + kill -9 within the save of step 30 + 20 from the checkpoint of step 20: every loss, rate, norm and loss
   scale, and every byte of the last checkpoint; each program, dtype and number of processes
   (a covering part of them without GANNET_TEST_FULL).
2. Saved on 2 processes, gone on with by 1 and by 4: the same samples, so the same losses within 1e-6, and parameters too.
3. SIGTERM: saved at the next boundary, exit code 85, and the same steps as if nothing had happened.
4. KILLS times (2, and 50 with GANNET_TEST_FULL) kill -9 at a random moment of a run that saves after every step: no checkpoint that was complete is lost.
"""
import array
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

GANNET, GPT2, CNN, FAULTY_IO, CNN_BF16 = sys.argv[1:6]
FULL = bool(os.environ.get("GANNET_TEST_FULL"))
KILLS = int(sys.argv[6]) if len(sys.argv) > 6 else 50 if FULL else 2
SEED = 20
TINY = ["--layers", 1, "--width", 32, "--heads", 2, "--seq-len", 32, "--generate", 0, "--threads", 1]


def fail(message):
    sys.exit(f"FAILED: {message}")


def run(command, expect=0, **environment):
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **environment}, timeout=300)
    if (done.returncode == 0) != (expect == 0):
        fail(f"exit code {done.returncode} of {' '.join(words)}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def write_config(folder, dtype="fp32", asynchronous=False, **members):
    config = {"train_batch_size": 8, "gradient_clipping": 1.0, "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}},
              "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-2, "warmup_num_steps": 30}},
              "gannet": {"checkpoint": {"async": asynchronous}}, **members}
    if dtype != "fp32":
        config[dtype] = {"enabled": True}
    if dtype == "fp16":  # a scale that is too large every fourth step
        config["fp16"].update(initial_scale_power=24, loss_scale_window=4)
    file = folder / "ds_config.json"
    file.write_text(json.dumps(config))
    return file


def launch(program, ranks):
    return [GANNET, "run", "--num_procs", ranks, "--", program]


class Gpt2:
    name = "gpt2"

    def __init__(self, folder, dtype, asynchronous):
        self.config = write_config(folder, dtype, asynchronous)

    def command(self, ranks, checkpoint, every):
        return [*launch(GPT2, ranks), *TINY, "--steps", 40, "--deepspeed_config", self.config, "--save-checkpoint", checkpoint,
                "--checkpoint-every", every, "--resume", "--metrics", f"{checkpoint}.jsonl"]


class Cnn:
    name = "cnn"

    def __init__(self, folder, dtype, asynchronous):
        self.arguments = ["--set", "train_batch_size=100", "--set", f"gannet.checkpoint.async={str(asynchronous).lower()}"]
        if dtype == "bf16":
            self.arguments += ["--deepspeed_config", CNN_BF16]
        if dtype == "fp16":
            for setting in ("fp16.enabled=true", "data_types.buffer_dtype=fp16", "fp16.initial_scale_power=24", "fp16.loss_scale_window=4"):
                self.arguments += ["--set", setting]

    def command(self, ranks, checkpoint, every):  # 4000 images: one epoch is 40 steps
        return [*launch(CNN, ranks), "--epochs", 1, *self.arguments, "--checkpoint", checkpoint, "--checkpoint-every", every]


def steps_of(file):
    """What each line of a metrics file says, without the time it took. A line over the end of a page can be seen half written."""
    text = file.read_text() if file.exists() else ""
    lines = [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]
    for line in lines:
        for key in [key for key in line if "second" in key]:
            del line[key]
    return lines


def files_of(checkpoint):
    return {file.name: file.read_bytes() for file in sorted(checkpoint.glob("rank-*.safetensors"))}


def resumes_bitwise(program, folder, dtype, ranks, asynchronous=False):
    what = f"{program.name}, {dtype}, {ranks} processes{', async' if asynchronous else ''}"
    one = program(folder, dtype, asynchronous)
    straight, broken = folder / "straight", folder / "broken"
    run(one.command(ranks, straight, 40))
    run(one.command(ranks, broken, 10), expect=1, LD_PRELOAD=FAULTY_IO, GANNET_FAULT="pwrite kill 1", GANNET_FAULT_PATH="global_step30")
    if (broken / "global_step30").exists() or not (broken / "global_step20").exists():
        fail(f"{what}: killed in the wrong place: {sorted(os.listdir(broken))}")
    said = run(one.command(ranks, broken, 10))
    if "global_step20" not in said:
        fail(f"{what}: it does not say what it goes on from\n{said}")
    left = [name for name in os.listdir(broken) if name.startswith(".") and name != ".gannet.lock"]
    if left:
        fail(f"{what}: left behind: {left}")
    expected = {line["step"]: line for line in steps_of(folder / "straight.jsonl")}
    found = steps_of(folder / "broken.jsonl")
    for line in found:
        if line != expected[line["step"]]:
            fail(f"{what}: step {line['step']} was {line}, in the straight run {expected[line['step']]}")
    if program is Gpt2 and [line["step"] for line in found[-20:]] != list(range(21, 41)):
        fail(f"{what}: went on at {[line['step'] for line in found]}")
    skipped = sum(bool(line.get("skipped")) for line in expected.values())
    if program is Gpt2 and dtype == "fp16" and not 0 < skipped < 20:
        fail(f"{what}: {skipped} skipped steps: the case means to have some")
    if files_of(straight / "global_step40") != files_of(broken / "global_step40") or not files_of(straight / "global_step40"):
        fail(f"{what}: the checkpoints of step 40 differ")
    print(f"{what}: bitwise{f', {skipped} steps skipped' if skipped else ''}", flush=True)


def parameters_of(gannet, checkpoint, out):
    """name -> array of fp32, from the exported safetensors."""
    run([gannet, "checkpoint", "export", checkpoint, out])
    tensors = {}
    for file in out.glob("*.safetensors"):
        data = file.read_bytes()
        size = int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8:8 + size]).items():
            if name != "__metadata__" and entry["dtype"] == "F32" and "running_" not in name:
                begin, end = entry["data_offsets"]
                tensors[name] = array.array("f", data[8 + size + begin:8 + size + end])
    return tensors


def goes_on_elsewhere(program, folder, arguments):
    for ranks in (2, 1, 4):
        checkpoint = folder / f"on{ranks}"
        run([*program(folder, "fp32", False).command(2, checkpoint, 20), *arguments(2)], expect=1, LD_PRELOAD=FAULTY_IO,
            GANNET_FAULT="pwrite kill 1", GANNET_FAULT_PATH="global_step40")
        run([*program(folder, "fp32", False).command(ranks, checkpoint, 20), *arguments(ranks)])
    there = parameters_of(GANNET, folder / "on2", folder / "out2")
    for ranks in (1, 4):
        here = parameters_of(GANNET, folder / f"on{ranks}", folder / f"out{ranks}")
        if here.keys() != there.keys() or not here:
            fail(f"{program.name}: other parameters on {ranks}")
        squares = sum((a - b) ** 2 for name in here for a, b in zip(here[name], there[name]))
        norm = sum(a * a for name in there for a in there[name])
        difference = (squares / norm) ** 0.5
        print(f"{program.name}: saved on 2, gone on with on {ranks}: parameters differ by {difference:.1e}", flush=True)
        if not difference < 1e-6:
            fail(f"{program.name}: {difference} is more than 1e-6")
        losses = [[line["loss"] for line in steps_of(folder / f"on{where}.jsonl")[-20:]] for where in (ranks, 2)]
        if any(abs(a - b) > 1e-6 * b for a, b in zip(*losses)):
            fail(f"{program.name}: other losses on {ranks}: {losses}")


def stops_on_request(folder):
    one = Gpt2(folder, "fp32", False)
    for name in ("straight", "stopped"):
        command = [str(word) for word in one.command(2, folder / name, 1000)]
        command[command.index("40")] = "300"
        if name == "stopped":
            job = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            while len(steps_of(folder / "stopped.jsonl")) < 5 and job.poll() is None:
                time.sleep(0.01)
            job.send_signal(signal.SIGTERM)
            said = job.communicate()[1]
            if job.returncode != 85:
                fail(f"SIGTERM: exit code {job.returncode} and not 85\n{said}")
        run(command)
    if steps_of(folder / "straight.jsonl") != steps_of(folder / "stopped.jsonl"):
        fail("SIGTERM: the steps differ from those of a run that was not stopped")
    print("stopped by SIGTERM and gone on with: bitwise", flush=True)


def survives_kills(folder):
    random.seed(SEED)
    configs = {kind: write_config(path, asynchronous=kind == "async") for kind in ("sync", "async")
               for path in [folder / kind] if path.mkdir() is None}
    for kind, config in configs.items():
        checkpoint, metrics = folder / kind / "run", folder / kind / "run.jsonl"
        # 3 million parameters: most of the time is spent saving.
        command = [str(word) for word in [GPT2, "--layers", 4, "--width", 256, "--heads", 2, "--seq-len", 16, "--generate", 0, "--threads", 1,
                                          "--deepspeed_config", config, "--metrics", metrics, "--set", "gannet.checkpoint.keep=2", "--set", "train_batch_size=1"]]
        saving = ["--save-checkpoint", str(checkpoint), "--checkpoint-every", "1", "--resume", "--steps", "100000"]
        newest, moments = 0, []
        for number in range(KILLS // 2):
            before = len(steps_of(metrics))
            job = subprocess.Popen(command + saving, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            while len(steps_of(metrics)) < before + 2 and job.poll() is None:
                time.sleep(0.01)
            time.sleep(random.uniform(0, 0.2))
            moments.append([name for name in os.listdir(checkpoint) if ".tmp-" in name])
            job.send_signal(signal.SIGKILL)
            said = job.communicate()[1]
            if job.returncode != -signal.SIGKILL:
                fail(f"kill {number}: it ended by itself: {said}")
            # The line of a step is written before its save; a save begins when the one before it is complete.
            at_least = steps_of(metrics)[-1]["step"] - (2 if kind == "async" else 1)
            run([GANNET, "checkpoint", "verify", checkpoint])
            newest = int((checkpoint / "latest").read_text().split()[0].removeprefix("global_step"))
            if newest < at_least:
                fail(f"{kind}, kill {number}: the checkpoint of step {at_least} was complete, the newest is {newest}")
        final = newest + 3
        run([*command, *saving[:-1], final])
        run([*command[:command.index("--metrics")], "--metrics", folder / kind / "straight.jsonl", "--set", "train_batch_size=1", "--steps", final])
        expected = {line["step"]: line for line in steps_of(folder / kind / "straight.jsonl")}
        lines = steps_of(metrics)
        for line in lines:
            if line != expected[line["step"]]:
                fail(f"{kind}: step {line['step']} was {line}, without kills {expected[line['step']]}")
        print(f"{kind}: {KILLS // 2} kills, {sum(map(bool, moments))} of them within a save; {final} steps, {len(lines) - final} of them done again, all bitwise", flush=True)


def main():
    def case(function, *arguments, **options):
        with tempfile.TemporaryDirectory() as name:
            function(*(argument(pathlib.Path(name)) if argument is pathlib.Path else argument for argument in arguments), **options)

    for program in (Gpt2, Cnn):
        for dtype in ("fp32", "bf16", "fp16"):
            for ranks in (1, 2):
                # Without FULL: bf16 and fp16 of gpt2 on one process, its fp32 on two (below), and fp32 of cnn on two.
                if not FULL and not (dtype == "fp32" and ranks == 2 if program is Cnn else dtype != "fp32" and ranks == 1):
                    continue
                case(resumes_bitwise, program, pathlib.Path, dtype, ranks)
    case(resumes_bitwise, Gpt2, pathlib.Path, "fp32", 2, asynchronous=True)
    # Adam divides by the root of the second moment: with eps near the rounding of small gradients it would amplify that.
    calm = ["--set", "optimizer.params.eps=1e-6", "--set", "optimizer.params.lr=3e-4", "--set", "scheduler.params.warmup_max_lr=3e-4"]
    case(goes_on_elsewhere, Gpt2, pathlib.Path, lambda ranks: calm)
    # Batch norm sees a micro-batch: it stays the same, and the steps of accumulation make up for the processes. SGD, since some
    # gradients before a batch norm are zero but for rounding, which Adam makes as large as any other.
    sgd = ["--set", "optimizer.type=SGD", "--set", "optimizer.params.momentum=0.9", "--set", "scheduler.params.warmup_max_lr=5e-4",
           "--set", "train_micro_batch_size_per_gpu=25"]
    if FULL:
        case(goes_on_elsewhere, Cnn, pathlib.Path, lambda ranks: sgd)
    case(stops_on_request, pathlib.Path)
    case(survives_kills, pathlib.Path)


if __name__ == "__main__":
    main()
