"""Writes deepspeed_schedules.json: the learning rate of each update under DeepSpeed 0.19.6's own schedules, for
peer_schedules_test.cpp. As its engine does, the schedule is made with the optimizer and stepped after every update. Run in a
virtual environment with deepspeed 0.19.6:  DS_ACCELERATOR=cpu python write_deepspeed_schedules.py"""
import json
import pathlib

import torch
from deepspeed.runtime import lr_schedules

LR, UPDATES = 0.1, 16
CASES = {
    "warmup_log": ("WarmupLR", dict(warmup_num_steps=6)),
    "warmup_linear": ("WarmupLR", dict(warmup_num_steps=6, warmup_type="linear", warmup_max_lr=0.05)),
    "warmup_above_zero": ("WarmupLR", dict(warmup_num_steps=5, warmup_type="linear", warmup_min_lr=0.01, warmup_max_lr=0.05)),
    "warmup_of_one": ("WarmupLR", dict(warmup_num_steps=1, warmup_type="linear")),
    "decay_log": ("WarmupDecayLR", dict(total_num_steps=12, warmup_num_steps=4, warmup_max_lr=0.1)),
    "decay_linear": ("WarmupDecayLR", dict(total_num_steps=12, warmup_num_steps=4, warmup_max_lr=0.1, warmup_type="linear")),
    "decay_above_zero": ("WarmupDecayLR",
                         dict(total_num_steps=14, warmup_num_steps=3, warmup_min_lr=0.02, warmup_max_lr=None, warmup_type="linear")),
    "decay_of_one": ("WarmupDecayLR", dict(total_num_steps=10, warmup_num_steps=1, warmup_max_lr=0.1, warmup_type="linear")),
    "cosine_linear": ("WarmupCosineLR", dict(total_num_steps=12, warmup_num_steps=4, warmup_type="linear", warmup_min_ratio=0.1)),
    "cosine_log": ("WarmupCosineLR", dict(total_num_steps=12, warmup_num_steps=4, cos_min_ratio=0.2)),
}


def rates(name, params):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=LR)
    schedule = getattr(lr_schedules, name)(optimizer, **params)
    found = []
    for _ in range(UPDATES):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


result = {name: {"type": kind, "params": params, "lr": LR, "rates": rates(kind, params)} for name, (kind, params) in CASES.items()}
text = ",\n".join(f" {json.dumps(name)}: {json.dumps(case)}" for name, case in result.items())
pathlib.Path(__file__).with_name("deepspeed_schedules.json").write_text("{\n" + text + "\n}\n")
