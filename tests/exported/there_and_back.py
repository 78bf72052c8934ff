"""There and back: exported from Python, trained by `gannet train` with a kill -9 in between, and read by Python again.

    GANNET=build/bin/gannet python tests/exported/there_and_back.py

It needs PyTorch, transformers and the package gannet_export (PYTHONPATH=python); CI does without it. For GPT-2 (tied weights) and a
small ResNet (buffers) it shows that
  - a run that was killed and resumed ends with the bits of one that was not,
  - what `gannet checkpoint export` writes, as safetensors and as .bin, and the run's own model.safetensors load by a strict
    load_state_dict; transformers' from_pretrained takes the folder,
  - the next loss in Python is that of `gannet train`'s evaluation of the trained model.
"""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import numpy
import torch
from safetensors.torch import load_file

import gannet_export
import make_archives

GANNET = os.environ["GANNET"]
SAMPLES, ROWS, UPDATES = 64, 4, 30


def data_of(name):
    generator = numpy.random.default_rng(3)
    if name == "gpt2":
        ids = generator.integers(1, 40, (SAMPLES, 8))
        return {"input_ids": ids, "labels": ids}
    return {"image": generator.standard_normal((SAMPLES, 3, 6, 7)).astype("float32"), "label": generator.integers(0, 5, SAMPLES)}


def train(folder, out, *more):
    return [GANNET, "train", "--model", f"{folder}/model", "--data", f"{folder}/data", "--eval_data", f"{folder}/eval", "--do_eval",
            "--output_dir", str(out), "--per_device_train_batch_size", str(ROWS), "--per_device_eval_batch_size", str(ROWS), "--max_steps",
            str(UPDATES), "--save_strategy", "steps", "--save_steps", "5", "--save_total_limit", "3", "--learning_rate", "1e-3",
            "--weight_decay", "0.01", "--warmup_steps", "5", "--deepspeed", f"{folder}/ds_config.json", *more]


def run(*command):
    done = subprocess.run(command, text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} exited with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def killed(command, out):
    """Starts a run, kills it once it has saved a checkpoint, and continues it."""
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while running.poll() is None and not list(out.glob("checkpoint-1?")):
        time.sleep(0.002)
    running.send_signal(signal.SIGKILL)
    running.wait()
    left = sorted(path.name for path in out.glob("checkpoint-*"))
    run(*command, "--resume_from_checkpoint", "last")
    return left


def loss_of(model, data):
    """The mean over batches, in eval mode, as the evaluation of `gannet train`."""
    model.eval()
    losses = []
    with torch.no_grad():
        for begin in range(0, SAMPLES, ROWS):
            result = model(**{name: torch.from_numpy(values[begin:begin + ROWS]) for name, values in data.items()})
            losses.append((result if isinstance(result, torch.Tensor) else result.loss).item())
    return sum(losses) / len(losses)


def there_and_back(name, folder):
    make, (example, *_) = make_archives.MODELS[name]
    torch.manual_seed(1)
    gannet_export.export_model(make(), example, f"{folder}/model", dtypes=["fp32"], say=lambda line: None)
    data = data_of(name)
    for part in ("data", "eval"):
        (folder / part).mkdir()
        for column, values in data.items():
            numpy.save(folder / part / f"{column}.npy", values)
    (folder / "ds_config.json").write_text('{"zero_optimization": {"stage": 2}}')
    text = run(*train(folder, folder / "whole"))
    evaluated = float(text.rsplit("evaluation loss ", 1)[1].split(";")[0])
    left = killed(train(folder, folder / "killed"), folder / "killed")
    same = (folder / "whole/model.safetensors").read_bytes() == (folder / "killed/model.safetensors").read_bytes()
    print(f"{name}: killed with {', '.join(left)}; resumed to the bits of the whole run: {same}")

    run(GANNET, "checkpoint", "export", f"{folder}/killed", f"{folder}/back")
    run(GANNET, "checkpoint", "export", f"{folder}/killed", f"{folder}/back.bin")
    states = {"out/model.safetensors": load_file(folder / "killed/model.safetensors"),
              "back/model.safetensors": load_file(folder / "back/model.safetensors"),
              "back.bin": torch.load(folder / "back.bin", weights_only=True)}
    ok = same
    for what, state in states.items():
        model = make()
        model.load_state_dict(state, strict=True)
        loss = loss_of(model, data)
        ok &= abs(loss - evaluated) <= 2e-6 * abs(evaluated)
        print(f"  {what}: {len(state)} names, strict load_state_dict; loss {loss:.9g} in Python, {evaluated:.9g} in Gannet")
    if (folder / "back/config.json").exists():
        import transformers
        model, info = transformers.AutoModelForCausalLM.from_pretrained(folder / "back", output_loading_info=True)
        loss = loss_of(model, data)
        ok &= abs(loss - evaluated) <= 2e-6 * abs(evaluated) and not any(info.values())
        print(f"  from_pretrained: {type(model).__name__}, loss {loss:.9g}; {', '.join(f'{key}: {len(one)}' for key, one in info.items())}")
    return ok


if __name__ == "__main__":
    torch.set_num_threads(1)
    results = []
    for chosen in ("gpt2", "residual"):
        with tempfile.TemporaryDirectory() as temporary:
            results.append(there_and_back(chosen, pathlib.Path(temporary)))
    print("all as expected" if all(results) else "DIFFERS")
    sys.exit(0 if all(results) else 1)
