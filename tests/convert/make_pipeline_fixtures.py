"""Writes the folders pipe-* under deepspeed/: checkpoints of pipelines of two stages by DeepSpeed 0.19.6, on the CPU.

    OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 make_pipeline_fixtures.py deepspeed
    OMP_NUM_THREADS=1 torchrun --nproc-per-node 4 make_pipeline_fixtures.py deepspeed [those whose name has TEXT]

Beside each checkpoint, expected.json: the parameters by their names in the whole model ("words.weight", "h.0.weight"), each with
its Adam moments, floats as the hexadecimal digits of their bytes; and the losses of the steps that DeepSpeed itself takes from there.
"""
import json
import os
import pathlib
import shutil
import sys

os.environ["DS_ACCELERATOR"] = "cpu"
import deepspeed
import torch
import torch.distributed as dist
from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec
from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

type(deepspeed.accelerator.get_accelerator()).is_fp16_supported = lambda self: True
sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # a faster all-reduce, which wants a compiler
WORDS, WIDTH, STEPS = 11, 6, 4


class Words(torch.nn.Embedding):
    """Values that no random generator makes, so that any program can make them."""

    def __init__(self):
        super().__init__(WORDS, WIDTH)
        self.weight.data = torch.sin(torch.arange(WORDS * WIDTH, dtype=torch.float32) + 1).view(WORDS, WIDTH) / 2


class Block(torch.nn.Linear):
    def __init__(self, number):
        super().__init__(WIDTH, WIDTH)
        self.weight.data = torch.cos(torch.arange(WIDTH * WIDTH, dtype=torch.float32) * (number + 1)).view(WIDTH, WIDTH) / 2
        self.bias.data.zero_()


class Scale(torch.nn.Module):
    """A frozen parameter and a buffer."""

    def __init__(self):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.linspace(0.5, 1.5, WIDTH), requires_grad=False)
        self.register_buffer("shift", torch.linspace(-0.1, 0.1, WIDTH))

    def forward(self, x):
        return x * self.gain + self.shift


def head(words, x):
    return torch.nn.functional.linear(x, words.weight)


def loss_of(logits, labels):
    return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten())


def batch(number, rank):
    """Micro-batch `number` of the run, of one rank along data."""
    ids = (torch.arange(2 * 6).view(2, 6) * 3 + 5 * number + 7 * rank + torch.arange(2).view(2, 1) * number) % WORDS
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


class Head(torch.nn.Linear):
    def __init__(self):
        super().__init__(WIDTH, WORDS)
        self.weight.data = torch.sin(torch.arange(WORDS * WIDTH, dtype=torch.float32) + 3).view(WORDS, WIDTH) / 2
        self.bias.data.zero_()


# name: number of ranks, ZeRO stage, dtype, model: "words" are tied to the output layer; "frozen" has a Scale as well; in "block"
# the first and the last block are one, without a function of its own, and so in the files of two layers
FIXTURES = {
    "pipe-s0-fp32-r2": (2, 0, "fp32", "words"),
    "pipe-s0-block-r2": (2, 0, "fp32", "block"),
    "pipe-s0-fp16-r2": (2, 0, "fp16", "words"),
    "pipe-s0-bf16-r2": (2, 0, "bf16", "words"),
    "pipe-s1-fp32-r2": (2, 1, "fp32", "frozen"),
    "pipe-s1-fp32-r4": (4, 1, "fp32", "words"),
}


def digits(tensor):
    return tensor.detach().float().contiguous().numpy().tobytes().hex()


def expected(engine, stage_of_zero):
    """This stage's parameters: DeepSpeed's own name and the tensors."""
    found = {}
    base = engine.optimizer
    if hasattr(base, "fp32_groups"):  # FP16_UnfusedOptimizer
        for members, masters in zip(base.fp16_groups, base.fp32_groups):
            for member, master in zip(members, masters):
                name = next(n for n, p in engine.module.named_parameters() if p is member)
                found[name] = {"master": digits(master)}
                for state in ("exp_avg", "exp_avg_sq"):
                    found[name][state] = digits(base.optimizer.state[master][state])
        return found
    if stage_of_zero == 1 and hasattr(base, "_lazy_init_hp_params_optimizer_state"):
        base._hp_optimizer_states_linked = False
        base._lazy_init_hp_params_optimizer_state()
    for name, parameter in engine.module.named_parameters():
        if not parameter.requires_grad:
            found[name] = {"master": digits(parameter)}
        elif hasattr(base, "fp32_groups_flat"):
            for group, members in enumerate(base.fp16_groups):
                at = 0
                for member in members:
                    if member is parameter:
                        flat = base.fp32_groups_flat[group]
                        found[name] = {"master": digits(flat[at:at + member.numel()])}
                        for state in ("exp_avg", "exp_avg_sq"):
                            found[name][state] = digits(base.optimizer.state[flat][state][at:at + member.numel()])
                    at += member.numel()
        elif stage_of_zero == 1 or not hasattr(base, "state") or parameter not in base.state:
            found[name] = {"master": digits(safe_get_full_fp32_param(parameter))}
            for state in ("exp_avg", "exp_avg_sq"):
                found[name][state] = digits(safe_get_full_optimizer_state(parameter, state))
        else:
            found[name] = {"master": digits(parameter)}
            for state in ("exp_avg", "exp_avg_sq"):
                found[name][state] = digits(base.state[parameter][state])
    return found


def whole_name(name, model):
    """Their "3.weight" is h.1.weight: layers 1, 3, 5 and 7 are blocks, with a function after each."""
    if name.startswith("tied_modules."):
        _, key, rest = name.split(".", 2)
        return ("words." if key == "embed" else "h.0.") + rest
    number, rest = name.split(".", 1)
    named = {"0": "words.", "9": "scale." if model == "frozen" else "head."}
    return named.get(number, f"h.{(int(number) - 1) // 2}.") + rest


def layers_of(model):
    if model == "block":
        shared = TiedLayerSpec("shared", Block, 0, tied_weight_attr=["weight", "bias"])
        blocks = [shared, LayerSpec(Block, 1), LayerSpec(Block, 2), shared]
        return [LayerSpec(Words), *(layer for block in blocks for layer in (block, torch.tanh)), LayerSpec(Head)]
    layers = [TiedLayerSpec("embed", Words), *(layer for i in range(4) for layer in (LayerSpec(Block, i), torch.tanh))]
    return layers + [LayerSpec(Scale)] * (model == "frozen") + [TiedLayerSpec("embed", Words, forward_fn=head)]


def make(name, ranks, zero, dtype, model, out):
    layers = layers_of(model)
    net = PipelineModule(layers, num_stages=2, loss_fn=loss_of, partition_method="uniform")
    config = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2, "gradient_clipping": 0.0, "steps_per_print": 1000,
              "zero_optimization": {"stage": zero}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.1, "torch_adam": True}}}
    if dtype == "bf16":
        config["bf16"] = {"enabled": True}
    if dtype == "fp16":
        config["fp16"] = {"enabled": True, "initial_scale_power": 4}
    engine, _, _, _ = deepspeed.initialize(model=net, config=config, model_parameters=[p for p in net.parameters() if p.requires_grad])

    def source():
        number = 0
        while True:
            yield batch(number, engine.grid.get_data_parallel_id())
            number += 1

    data, losses = source(), []
    for _ in range(STEPS):
        losses.append(float(engine.train_batch(data)))
    folder = out / name
    if dist.get_rank() == 0:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    dist.barrier()
    parts = [None] * ranks
    dist.all_gather_object(parts, expected(engine, zero))
    engine.save_checkpoint(str(folder), tag="step4", client_state={"epoch": 2})
    continued = [float(engine.train_batch(data)) for _ in range(STEPS)]
    if dist.get_rank() == 0:
        (folder / "zero_to_fp32.py").unlink(missing_ok=True)
        tensors = {}
        for part in parts:
            for theirs, values in part.items():
                ours = whole_name(theirs, model)
                assert tensors.setdefault(ours, values) == values, f"{theirs} differs between stages"
        text = {"tensors": tensors, "losses": losses, "continued": continued}
        (folder / "expected.json").write_text(json.dumps(text, indent=0) + "\n")
        print(name, losses, continued, flush=True)
    dist.barrier()


deepspeed.init_distributed("gloo")
for fixture, (fixture_ranks, *how) in FIXTURES.items():
    if fixture_ranks == dist.get_world_size() and (not sys.argv[2:] or sys.argv[2] in fixture):
        make(fixture, fixture_ranks, *how, pathlib.Path(sys.argv[1]))
dist.destroy_process_group()
