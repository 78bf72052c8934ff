"""Writes the folders under deepspeed/: checkpoints of a model of 105 parameters by DeepSpeed 0.19.6, on the CPU.

    OMP_NUM_THREADS=1 torchrun --nproc-per-node 1 make_deepspeed_fixtures.py deepspeed
    OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 make_deepspeed_fixtures.py deepspeed [those whose name has TEXT]

universal-s2-r2 and universal-s3-r2 are conversions of s2-fp32-r2 and s3-bf16-r2:

    DS_ACCELERATOR=cpu python -m deepspeed.checkpoint.ds_to_universal --input_folder deepspeed/s2-fp32-r2/step4 \\
        --output_folder deepspeed/universal-s2-r2/step4_universal --inject_missing_state

Beside each checkpoint, expected.json: what DeepSpeed's own accessors say of it, floats as the hexadecimal digits of their bytes.
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
from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

# DeepSpeed does not take fp16 on every CPU, though PyTorch computes it.
type(deepspeed.accelerator.get_accelerator()).is_fp16_supported = lambda self: True


class Tiny(torch.nn.Module):
    """Two groups, a tied weight, frozen parameters, a buffer, sizes that two ranks cannot halve."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(7, 4)
        self.first = torch.nn.Linear(4, 5)
        self.norm = torch.nn.LayerNorm(5)
        self.frozen = torch.nn.Linear(5, 3).requires_grad_(False)
        self.second = torch.nn.Linear(5, 4)
        self.head = torch.nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.tensor([0.5, 2.0, 1.5]))

    def forward(self, tokens):
        x = self.norm(self.first(self.embed(tokens)))
        return self.head(self.second(torch.relu(x))), (self.frozen(x) * self.scale).mean()


# name: stage, dtype, other keys of the config
FIXTURES = {
    1: {
        "s0-fp32-r1": (0, "fp32", {}),
        "s0-bf16-r1": (0, "bf16", {}),
        "s0-bf16-torch-r1": (0, "bf16", {"optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "betas": [0.9, 0.95], "weight_decay": 0.1, "torch_adam": True}}}),
        "s1-fp16-r1": (1, "fp16", {}),
        "s1-sgd-r1": (1, "fp32", {"optimizer": {"type": "SGD", "params": {"lr": 1e-2, "momentum": 0.9}}, "zero_allow_untested_optimizer": True}),
        "s1-nadam-r1": (1, "fp32", {"zero_allow_untested_optimizer": True}),
        "s2-fp32-r1": (2, "fp32", {}),
        "s3-bf16-r1": (3, "bf16", {}),
    },
    2: {
        "s0-fp32-r2": (0, "fp32", {}),
        "s1-bf16-r2": (1, "bf16", {}),
        "s1-bf16-accumulated-r2": (1, "bf16", {"data_types": {"grad_accum_dtype": "fp32"}}),
        "s2-fp32-r2": (2, "fp32", {}),
        "s3-fp32-r2": (3, "fp32", {}),
        "s3-bf16-r2": (3, "bf16", {}),
    },
}


def config(stage, dtype, more):
    result = {
        "train_micro_batch_size_per_gpu": 2,
        "zero_optimization": {"stage": stage},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "betas": [0.9, 0.95], "weight_decay": 0.1}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 1e-2, "warmup_num_steps": 8}},
    }
    if stage == 3:
        result["zero_optimization"].update(sub_group_size=40, stage3_param_persistence_threshold=8)
    if dtype == "bf16":
        result["bf16"] = {"enabled": True}
    if dtype == "fp16":  # so high that the first steps overflow
        result["fp16"] = {"enabled": True, "initial_scale_power": 19, "loss_scale_window": 3}
    return {**result, **more}


def digits(tensor):
    return tensor.detach().float().contiguous().numpy().tobytes().hex()


def expected(engine, model, stage, states):
    """Each trained parameter's master and states, whole, as DeepSpeed itself finds them."""
    result = {}
    base = engine.optimizer
    if stage in (1, 2):  # it links its accessors to the states after the first group's first update, before the second's
        base._hp_optimizer_states_linked = False
        base._lazy_init_hp_params_optimizer_state()
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        entry = {}
        if stage > 0:
            entry["shape"] = list(getattr(parameter, "ds_shape", parameter.shape))
            entry["master"] = digits(safe_get_full_fp32_param(parameter))
            for state in states:
                entry[state] = digits(safe_get_full_optimizer_state(parameter, state))
        elif hasattr(base, "fp32_groups_flat"):
            for group, members in enumerate(base.fp16_groups):
                at = 0
                for member in members:
                    if member is parameter:
                        flat = base.fp32_groups_flat[group]
                        entry = {"shape": list(parameter.shape), "master": digits(flat[at:at + parameter.numel()])}
                        for state in states:
                            entry[state] = digits(base.optimizer.state[flat][state][at:at + parameter.numel()])
                    at += member.numel()
        elif hasattr(base, "fp32_groups"):
            for members, masters in zip(base.fp16_groups, base.fp32_groups):
                for member, master in zip(members, masters):
                    if member is parameter:
                        entry = {"shape": list(parameter.shape), "master": digits(master)}
                        for state in states:
                            entry[state] = digits(base.optimizer.state[master][state])
        else:
            entry = {"shape": list(parameter.shape), "master": digits(parameter)}
            for state in states:
                entry[state] = digits(base.state[parameter][state])
        result[name] = entry
    return result


def make(name, stage, dtype, more, out):
    rank = dist.get_rank()
    torch.manual_seed(5)
    model = Tiny()
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    groups = [{"params": [p for _, p in named if p.dim() > 1]}, {"params": [p for _, p in named if p.dim() == 1], "weight_decay": 0.0}]
    settings = config(stage, dtype, more)
    optimizer = None
    if "nadam" in name:
        optimizer = torch.optim.NAdam(groups, lr=1e-2)
        del settings["optimizer"]
    frozen = {n: p.detach().clone() for n, p in model.named_parameters() if not p.requires_grad}
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=groups, optimizer=optimizer, config=settings)
    generator = torch.Generator().manual_seed(11 + rank)
    while engine.global_steps - engine.skipped_steps < 4:
        tokens = torch.randint(0, 7, (2, 3), generator=generator)
        logits, extra = engine(tokens)
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens.roll(1, 1).flatten()) + extra.float()
        engine.backward(loss)
        engine.step()
    states = () if "nadam" in name else ("momentum_buffer",) if "sgd" in name else ("exp_avg", "exp_avg_sq")
    tensors = expected(engine, model, stage, states)
    folder = out / name
    if rank == 0:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    dist.barrier()
    client = {"epoch": 2, "best": 0.25, "words": ["a", None, True], "mask": torch.tensor([3, 1, 2])}
    engine.save_checkpoint(str(folder), tag="step4", client_state=client)
    if rank == 0:
        (folder / "zero_to_fp32.py").unlink(missing_ok=True)
        scaler = getattr(engine.optimizer, "loss_scaler", None)
        text = {"stage": stage, "tensors": tensors, "frozen": {n: digits(p.to(getattr(torch, {"bf16": "bfloat16", "fp16": "float16"}.get(dtype, "float32")))) for n, p in frozen.items()},
                "lr": engine.get_lr(), "global_steps": engine.global_steps, "skipped_steps": engine.skipped_steps, "global_samples": engine.global_samples,
                "scale": float(scaler.cur_scale) if dtype == "fp16" else 1.0}
        if dtype == "fp16":
            text["scaler"] = [scaler.cur_iter, scaler.last_overflow_iter, scaler.cur_hysteresis]
        (folder / "expected.json").write_text(json.dumps(text, indent=0) + "\n")
    dist.barrier()


deepspeed.init_distributed("gloo")
for fixture, (fixture_stage, fixture_dtype, fixture_more) in FIXTURES[dist.get_world_size()].items():
    if sys.argv[2:] and sys.argv[2] not in fixture:
        continue
    make(fixture, fixture_stage, fixture_dtype, fixture_more, pathlib.Path(sys.argv[1]))
dist.destroy_process_group()
