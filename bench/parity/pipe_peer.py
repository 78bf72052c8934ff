"""Trains a GPT-2 as a pipeline under DeepSpeed on the CPU, or in a plain loop of PyTorch and transformers.

    torchrun --nproc-per-node 4 pipe_peer.py --pipeline 2 --model DIR --tokens FILE --seq-len 32 --steps 20 --deepspeed_config FILE
    python3 pipe_peer.py --plain float64 --ranks 2 --model DIR ...

DIR holds a model as transformers writes it; dropout is not applied. The flags, the order of the samples and the lines of
--metrics are those of examples/gpt2. --plain trains Hugging Face's own GPT2LMHeadModel in one process, on the samples of
--ranks data-parallel ranks: the arithmetic that a pipeline should reproduce.
"""
import argparse
import json
import os
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional


class Conv1D(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.empty(outputs))

    def forward(self, x):
        return torch.addmm(self.bias, x.reshape(-1, x.size(-1)), self.weight).view(*x.shape[:-1], -1)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn, self.c_proj = Conv1D(width, 3 * width), Conv1D(width, width)

    def forward(self, x):  # [B, T, width] -> the same
        batch, length, width = x.shape
        query, key, value = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.c_attn(x).split(width, dim=2))
        y = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(batch, length, width))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc, self.c_proj = Conv1D(width, 4 * width), Conv1D(4 * width, width)

    def forward(self, x):
        return self.c_proj(functional.gelu(self.c_fc(x), approximate="tanh"))  # "gelu_new" of the config


class Block(nn.Module):
    """A block of GPT-2 whose parameters have the names of transformers' GPT2Block."""

    def __init__(self, width, heads, epsilon):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width, eps=epsilon), Attention(width, heads)
        self.ln_2, self.mlp = nn.LayerNorm(width, eps=epsilon), Mlp(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Positions(nn.Embedding):
    def forward(self, x):
        return x + self.weight[:x.size(1)]


def head(words, x):
    return functional.linear(x, words.weight)


def loss_of(logits, targets):
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def layers_of(config):
    """The layers of the pipeline, and the prefix that each one's parameters have in the file."""
    from deepspeed.pipe import LayerSpec, TiedLayerSpec

    width, epsilon = config["n_embd"], config["layer_norm_epsilon"]
    words = (config["vocab_size"], width)
    layers = [(TiedLayerSpec("wte", nn.Embedding, *words), "wte."), (LayerSpec(Positions, config["n_positions"], width), "wpe.")]
    layers += [(LayerSpec(Block, width, config["n_head"], epsilon), f"h.{i}.") for i in range(config["n_layer"])]
    layers += [(LayerSpec(nn.LayerNorm, width, eps=epsilon), "ln_f."), (TiedLayerSpec("wte", nn.Embedding, *words, forward_fn=head), "wte.")]
    return [layer for layer, _ in layers], [prefix for _, prefix in layers]


def load(module, prefixes, file):
    from safetensors import safe_open

    with safe_open(file, framework="pt") as weights, torch.no_grad():
        for name, parameter in module.named_parameters():  # "3.attn.c_attn.weight", "tied_modules.wte.weight"
            first, rest = name.split(".", 1)
            source = rest if first == "tied_modules" else prefixes[int(first)] + rest
            parameter.copy_(weights.get_tensor("transformer." + source))


class Samples:
    """The samples of examples/gpt2: micro-batch a of step s on rank r of W has ((s A + a) W + r) B and the B - 1 after it."""

    def __init__(self, args, micro_batch, accumulation):
        self.tokens = np.fromfile(args.tokens, dtype=np.uint8 if args.token_bytes == 1 else np.uint16).astype(np.int64)
        self.length, self.micro_batch, self.accumulation = args.seq_len, micro_batch, accumulation

    def batch(self, number, rank, ranks):
        """Micro-batch `number`, counted from the first step on: inputs and targets, [B, T] int64."""
        first = (number * ranks + rank) * self.micro_batch
        starts = (np.arange(first, first + self.micro_batch) * self.length)[:, None]
        rows = torch.from_numpy(np.take(self.tokens, starts + np.arange(self.length + 1), mode="wrap"))
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

    def of_rank(self, rank, ranks):
        number = 0
        while True:
            yield self.batch(number, rank, ranks)
            number += 1


class Metrics:
    def __init__(self, path):
        self.out = open(path, "w") if path else None

    def write(self, step, loss, lr, norm, seconds):
        if self.out:
            line = {"step": step, "loss": loss, "lr": lr, "grad_norm": norm, "loss_scale": 1.0, "skipped": False, "seconds": seconds}
            self.out.write(json.dumps(line) + "\n")
            self.out.flush()


class PassTimes:
    """The seconds of each step that this rank's forward and backward passes take; their waiting for other stages is not in them."""

    def __init__(self, engine):
        self.seconds, self.steps = {"forward": 0.0, "backward": 0.0}, []
        kinds = {"ForwardPass": "forward", "BackwardPass": "backward"}
        engine._INSTRUCTION_MAP = {instruction: self.timed(kinds[instruction.__name__], function) if instruction.__name__ in kinds else function
                                   for instruction, function in engine._INSTRUCTION_MAP.items()}

    def timed(self, kind, function):
        def call(*args, **options):
            began = time.perf_counter()
            function(*args, **options)
            self.seconds[kind] += time.perf_counter() - began
        return call

    def end_step(self):
        self.steps.append(dict(self.seconds))
        self.seconds = dict.fromkeys(self.seconds, 0.0)


def train_pipeline(args, model, config):
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed
    import torch.distributed as dist
    from deepspeed.pipe import PipelineModule

    deepspeed.init_distributed("gloo")
    layers, prefixes = layers_of(model)
    net = PipelineModule(layers, num_stages=args.pipeline, loss_fn=loss_of, partition_method=args.partition)
    load(net, prefixes, os.path.join(args.model, "model.safetensors"))
    engine, _, _, _ = deepspeed.initialize(model=net, model_parameters=list(net.parameters()), config=config)
    samples = Samples(args, engine.train_micro_batch_size_per_gpu(), engine.gradient_accumulation_steps())
    source = samples.of_rank(engine.grid.get_data_parallel_id(), engine.grid.data_parallel_size)
    metrics = Metrics(args.metrics if dist.get_rank() == 0 else "")
    passes = PassTimes(engine) if args.pass_times else None
    for step in range(args.steps):
        began, lr = time.perf_counter(), engine.optimizer.param_groups[0]["lr"]
        loss = float(engine.train_batch(source))
        norm = engine.get_global_grad_norm()
        metrics.write(step + 1, loss, lr, None if norm is None else float(norm), time.perf_counter() - began)
        if passes:
            passes.end_step()
    if passes:
        with open(f"{args.pass_times}.rank{dist.get_rank()}.json", "w") as file:
            json.dump(passes.steps, file)
    dist.barrier()
    dist.destroy_process_group()


def clip_by_blocks(model, blocks, clipping):
    """Clips all gradients by the norm of those of the embeddings and the first `blocks` blocks."""
    first = ("transformer.wte.", "transformer.wpe.", *(f"transformer.h.{i}." for i in range(blocks)))
    norm = torch.stack([p.grad.norm() for name, p in model.named_parameters() if name.startswith(first)]).norm()
    for parameter in model.parameters():
        parameter.grad.mul_(torch.clamp(clipping / (norm + 1e-6), max=1.0))
    return norm.item()


def train_plain(args, config):
    from transformers import GPT2LMHeadModel

    dtype, section = getattr(torch, args.plain), config["optimizer"]["params"]
    model = GPT2LMHeadModel.from_pretrained(args.model, dtype=dtype, attn_implementation="sdpa").train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=section["lr"], betas=section["betas"], eps=section["eps"],
                                  weight_decay=section["weight_decay"])
    micro_batch, accumulation = config["train_micro_batch_size_per_gpu"], config["gradient_accumulation_steps"]
    samples, metrics = Samples(args, micro_batch, accumulation), Metrics(args.metrics)
    for step in range(args.steps):
        began, total = time.perf_counter(), 0.0
        optimizer.zero_grad()
        for a in range(accumulation):
            for rank in range(args.ranks):
                inputs, targets = samples.batch(step * accumulation + a, rank, args.ranks)
                loss = loss_of(model(inputs, use_cache=False).logits, targets) / (accumulation * args.ranks)
                loss.backward()
                total += loss.item()
        clipping = config.get("gradient_clipping", 1.0) or float("inf")
        if args.clip_by_blocks is None:
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clipping).item()
        else:
            norm = clip_by_blocks(model, args.clip_by_blocks, clipping)
        optimizer.step()
        metrics.write(step + 1, total, section["lr"], norm, time.perf_counter() - began)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--tokens", required=True)
    parser.add_argument("--token-bytes", type=int, default=1, choices=(1, 2))
    parser.add_argument("--seq-len", type=int, default=128)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--metrics", default="/dev/stdout")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--deepspeed_config", required=True)
    parser.add_argument("--pipeline", type=int, default=1, help="stages")
    parser.add_argument("--partition", default="type:Block", help="PipelineModule's partition_method")
    parser.add_argument("--plain", choices=("float32", "float64"), help="a plain loop in this dtype, without DeepSpeed")
    parser.add_argument("--ranks", type=int, default=1, help="data-parallel ranks whose samples --plain trains on")
    parser.add_argument("--clip-by-blocks", type=int, help="with --plain: clip by the norm of the embeddings and the first N blocks only", metavar="N")
    parser.add_argument("--pass-times", metavar="PREFIX", help="each rank writes the seconds of its passes in each step to PREFIX.rankN.json")
    parser.add_argument("--local_rank", type=int)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    with open(os.path.join(args.model, "config.json")) as file:
        model = json.load(file)
    with open(args.deepspeed_config) as file:
        config = json.load(file)
    if model.get("activation_function", "gelu_new") != "gelu_new" or model.get("n_inner"):
        parser.error("--model: this program has gelu_new and an inner width of 4 times the width alone")
    train_plain(args, config) if args.plain else train_pipeline(args, model, config)


if __name__ == "__main__":
    main()
