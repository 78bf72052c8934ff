"""Writes transformers_schedules.json: the learning rate of each update by get_scheduler of transformers 5.23.0, for
transformers_test.cpp and tests/trainer/schedule_test.cpp. Run in a virtual environment with transformers 5.23.0 and LibTorch's
CPU half:  python write_transformers_schedules.py

Each case has training arguments; warmup_steps below 1 is a share of the run, as TrainingArguments has it."""
import json
import math
import pathlib
import warnings

import torch
from transformers import get_scheduler

LEARNING_RATE, STEPS, BEYOND = 0.02, 20, 4
CASES = {
    "linear": dict(lr_scheduler_type="linear"),
    "linear_warmup": dict(lr_scheduler_type="linear", warmup_steps=6),
    "linear_warmup_of_one": dict(lr_scheduler_type="linear", warmup_steps=1),
    "linear_share": dict(lr_scheduler_type="linear", warmup_steps=0.33),
    "constant": dict(lr_scheduler_type="constant", warmup_steps=3),
    "constant_with_warmup": dict(lr_scheduler_type="constant_with_warmup", warmup_steps=5),
    "constant_without_warmup": dict(lr_scheduler_type="constant_with_warmup"),
    "cosine": dict(lr_scheduler_type="cosine"),
    "cosine_warmup": dict(lr_scheduler_type="cosine", warmup_steps=4, lr_scheduler_kwargs=dict(num_cycles=1.25)),
    "restarts": dict(lr_scheduler_type="cosine_with_restarts"),
    "restarts_warmup": dict(lr_scheduler_type="cosine_with_restarts", warmup_steps=2, lr_scheduler_kwargs=dict(num_cycles=3)),
    "min_lr": dict(lr_scheduler_type="cosine_with_min_lr", lr_scheduler_kwargs=dict(min_lr=0.004)),
    "min_lr_rate": dict(lr_scheduler_type="cosine_with_min_lr", warmup_steps=3,
                        lr_scheduler_kwargs=dict(min_lr_rate=0.3, num_cycles=0.75)),
    "min_lr_warmup": dict(lr_scheduler_type="cosine_warmup_with_min_lr", warmup_steps=4, lr_scheduler_kwargs=dict(min_lr=0.002)),
    "min_lr_warmup_rate": dict(lr_scheduler_type="cosine_warmup_with_min_lr", warmup_steps=5,
                               lr_scheduler_kwargs=dict(min_lr_rate=0.1, warmup_lr_rate=0.25, num_cycles=0.4)),
    "polynomial": dict(lr_scheduler_type="polynomial"),
    "polynomial_warmup": dict(lr_scheduler_type="polynomial", warmup_steps=3, lr_scheduler_kwargs=dict(power=2.5, lr_end=0.001)),
    "inverse_sqrt": dict(lr_scheduler_type="inverse_sqrt"),
    "inverse_sqrt_warmup": dict(lr_scheduler_type="inverse_sqrt", warmup_steps=4),
    "inverse_sqrt_timescale": dict(lr_scheduler_type="inverse_sqrt", warmup_steps=4, lr_scheduler_kwargs=dict(timescale=7)),
    "stable": dict(lr_scheduler_type="warmup_stable_decay", warmup_steps=4, lr_scheduler_kwargs=dict(num_decay_steps=6)),
    "stable_linear": dict(lr_scheduler_type="warmup_stable_decay", warmup_steps=5,
                          lr_scheduler_kwargs=dict(num_decay_steps=7, num_stable_steps=6, decay_type="linear", warmup_type="cosine",
                                                   min_lr_ratio=0.1)),
    "stable_sqrt": dict(lr_scheduler_type="warmup_stable_decay", warmup_steps=5,
                        lr_scheduler_kwargs=dict(num_decay_steps=9, decay_type="1-sqrt", warmup_type="1-sqrt", min_lr_ratio=0.2)),
    "stable_cosine": dict(lr_scheduler_type="warmup_stable_decay",
                          lr_scheduler_kwargs=dict(num_decay_steps=15, num_cycles=1.5, min_lr_ratio=0.05)),
}


def rates(arguments):
    warmup = arguments.get("warmup_steps", 0)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=LEARNING_RATE)
    schedule = get_scheduler(arguments["lr_scheduler_type"], optimizer,
                             num_warmup_steps=int(warmup) if warmup >= 1 else math.ceil(STEPS * warmup),
                             num_training_steps=STEPS, scheduler_specific_kwargs=arguments.get("lr_scheduler_kwargs"))
    found = []
    for _ in range(STEPS + BEYOND):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


warnings.simplefilter("ignore")
result = {name: {"arguments": {"learning_rate": LEARNING_RATE, "max_steps": STEPS, **case}, "rates": rates(case)}
          for name, case in CASES.items()}
text = ",\n".join(f" {json.dumps(name)}: {json.dumps(case)}" for name, case in result.items())
pathlib.Path(__file__).with_name("transformers_schedules.json").write_text("{\n" + text + "\n}\n")
