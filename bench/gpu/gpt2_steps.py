"""Steps of one GPT-2 on a GPU under Gannet, under DeepSpeed and in plain PyTorch, in turns: seconds a step and losses.

    python3 bench/gpu/gpt2_steps.py --gpt2 build/bin/gpt2 --work DIR [--rounds 3] [--steps 40] [--cases 0 2-cpu 3-cpu]

All train the same randomly initialised weights on the same tokens in bf16 with fp32 masters, AdamW and clipping: Hugging Face's
GPT-2 with PyTorch's attention under DeepSpeed and in PyTorch, examples/gpt2 under Gannet. A case is a ZeRO stage and a tier of
offload_optimizer (3-both: of parameters, too). PyTorch (case 0 only) has a hand-written loop with torch.optim.AdamW(fused=True).
Needs transformers and safetensors; DeepSpeed is left out where it cannot be imported.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--gpt2", help="Gannet's examples/gpt2")
parser.add_argument("--work", required=True)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--skip", type=int, default=10, help="first steps of each run that do not count")
parser.add_argument("--cases", nargs="+", default=["0"])
parser.add_argument("--micro-batch", type=int, default=16)
parser.add_argument("--length", type=int, default=1024)
parser.add_argument("--layers", type=int, default=12)
parser.add_argument("--width", type=int, default=768)
parser.add_argument("--heads", type=int, default=12)
parser.add_argument("--vocab", type=int, default=50304)
parser.add_argument("--run", choices=["deepspeed", "torch"], help=argparse.SUPPRESS)  # this file as a peer's program
parser.add_argument("--config", help=argparse.SUPPRESS)
parser.add_argument("--metrics", help=argparse.SUPPRESS)
arguments = parser.parse_args()
WORK = pathlib.Path(arguments.work)


def config_of(case):
    stage, _, tier = case.partition("-")
    zero = {"stage": int(stage)}
    if tier:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if tier == "both":
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    return {"train_micro_batch_size_per_gpu": arguments.micro_batch, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0,
            "steps_per_print": 10**9, "bf16": {"enabled": True}, "zero_optimization": zero,
            "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}}}


def make_inputs():
    import numpy as np
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    WORK.mkdir(parents=True, exist_ok=True)
    np.random.default_rng(1).integers(0, arguments.vocab, 1 << 21).astype(np.uint16).tofile(WORK / "tokens")
    torch.manual_seed(7)
    GPT2LMHeadModel(GPT2Config(n_layer=arguments.layers, n_embd=arguments.width, n_head=arguments.heads, vocab_size=arguments.vocab,
                               n_positions=arguments.length, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0,
                               eos_token_id=0)).save_pretrained(WORK / "model")


def batches():
    import numpy as np
    import torch
    tokens = np.fromfile(WORK / "tokens", dtype=np.uint16).astype(np.int64)
    length = arguments.length
    for step in range(arguments.steps):
        first = [(step * arguments.micro_batch + j) * length for j in range(arguments.micro_batch)]
        batch = torch.from_numpy(np.stack([np.take(tokens, np.arange(at, at + length + 1), mode="wrap") for at in first])).cuda()
        yield batch[:, :-1], batch[:, 1:].flatten()


def train(one_step):
    """`one_step(inputs, targets)` returns the loss as a number."""
    import torch
    with open(arguments.metrics, "w") as out:
        for inputs, targets in batches():
            began = time.perf_counter()
            loss = one_step(inputs, targets)
            out.write(json.dumps({"loss": loss, "seconds": time.perf_counter() - began,
                                  "bytes": torch.cuda.max_memory_allocated()}) + "\n")


def run_deepspeed():
    for key, value in {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29577"}.items():
        os.environ.setdefault(key, value)
    import deepspeed
    import torch
    from transformers import GPT2LMHeadModel
    deepspeed.init_distributed("nccl")
    model = GPT2LMHeadModel.from_pretrained(WORK / "model", dtype=torch.float32, attn_implementation="sdpa").train()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=json.loads(arguments.config))

    def one_step(inputs, targets):
        logits = engine(inputs, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), targets)
        engine.backward(loss)
        engine.step()
        return loss.item()

    train(one_step)


def run_torch():
    import torch
    from transformers import GPT2LMHeadModel
    model = GPT2LMHeadModel.from_pretrained(WORK / "model", dtype=torch.float32, attn_implementation="sdpa").train().cuda()
    masters = [parameter.detach().clone() for parameter in model.parameters()]
    model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(masters, lr=3e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True)

    def one_step(inputs, targets):
        logits = model(inputs, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), targets)
        loss.backward()
        for master, parameter in zip(masters, model.parameters()):
            master.grad = parameter.grad.float()
            parameter.grad = None
        torch.nn.utils.clip_grad_norm_(masters, 1.0)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(list(model.parameters()), masters)
        return loss.item()

    train(one_step)


def measure(side, case):
    """(median seconds of a step, losses, most bytes of the device or None)."""
    metrics = WORK / f"{side}.jsonl"
    metrics.unlink(missing_ok=True)
    config = json.dumps(config_of(case))
    if side == "gannet":
        (WORK / "ds_config.json").write_text(config)
        command = [arguments.gpt2, "--model", WORK / "model", "--tokens", WORK / "tokens", "--token-bytes", 2, "--seq-len",
                   arguments.length, "--steps", arguments.steps, "--metrics", metrics, "--deepspeed_config", WORK / "ds_config.json"]
    else:
        command = [sys.executable, __file__, "--run", side, "--config", config, "--metrics", metrics]
        for name in ("work", "steps", "micro_batch", "length"):
            command += ["--" + name.replace("_", "-"), getattr(arguments, name)]
    log = WORK / f"{side}.log"
    with open(log, "w") as out:
        done = subprocess.run([str(word) for word in command], stdout=out, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        print(f"{side} {case} failed: its last words are\n{log.read_text()[-1500:]}")
        return None
    steps = [json.loads(line) for line in metrics.read_text().splitlines()]
    return statistics.median(step["seconds"] for step in steps[arguments.skip:]), [step["loss"] for step in steps], steps[-1].get("bytes")


def main():
    make_inputs()
    sides = ["gannet", "torch"]
    if subprocess.run([sys.executable, "-c", "import deepspeed"], capture_output=True).returncode == 0:
        sides.insert(1, "deepspeed")
    for case in arguments.cases:
        seconds = {side: [] for side in sides if side != "torch" or case == "0"}
        for round_ in range(arguments.rounds):
            losses = {}
            for side in list(seconds):
                found = measure(side, case)
                if not found:
                    del seconds[side]
                    continue
                seconds[side].append(found[0])
                losses[side] = found[1]
                tokens = arguments.micro_batch * arguments.length / found[0]
                peak = f", {found[2] / 2**30:.2f} GiB at most" if found[2] else ""
                print(f"case {case}, round {round_}: {side:9} {found[0] * 1e3:8.2f} ms a step, {tokens:9.0f} tokens/s{peak}", flush=True)
            if round_ == 0 and "gannet" in losses:
                for side in losses:
                    apart = max(abs(a - b) for a, b in zip(losses[side], losses["gannet"]))
                    print(f"case {case}: {side} losses {losses[side][0]:.5f} to {losses[side][-1]:.5f}, at most {apart:.2g} from Gannet's")
        for side in seconds:
            if side != "gannet" and "gannet" in seconds:
                ratio = statistics.median(b / a for a, b in zip(seconds["gannet"], seconds[side]))
                print(json.dumps({"bench": "gpt2_steps", "case": case, "peer": side, "ours_ms": round(1e3 * statistics.median(seconds["gannet"]), 2),
                                  "peer_ms": round(1e3 * statistics.median(seconds[side]), 2), "times_as_fast": round(ratio, 3)}), flush=True)


if __name__ == "__main__":
    {"deepspeed": run_deepspeed, "torch": run_torch, None: main}[arguments.run]()
