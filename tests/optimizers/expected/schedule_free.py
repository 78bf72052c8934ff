"""Writes schedule_free.h: five steps of AdamWScheduleFree of its authors' package, in fp32: the trained weights y and, after
optimizer.eval(), the averaged weights x.

    pip install torch==2.11.0 schedulefree==1.4.1 && python schedule_free.py > schedule_free.h
"""
import json

import torch
from schedulefree import AdamWScheduleFree

CASES = [
    {},
    {"lr": 0.1, "weight_decay": 0.1, "warmup_steps": 3},
    {"lr": 0.05, "betas": [0.95, 0.98], "eps": 1e-6, "r": 1.0, "weight_lr_power": 1.0},
]
print("// Written by schedule_free.py, which see.\n#pragma once\n")
print("struct ExpectedScheduleFree {\n  const char* params;\n  double trained[4], averaged[4];  // after 5 steps\n};")
print("inline constexpr ExpectedScheduleFree kExpectedScheduleFree[] = {")
for case in CASES:
    p = torch.nn.Parameter(torch.tensor([0.5, -1.0, 2.0, 0.0]))
    given = dict(case)
    if "betas" in given:
        given["betas"] = tuple(given["betas"])
    optimizer = AdamWScheduleFree([p], foreach=False, **given)
    optimizer.train()
    for step in range(1, 6):
        p.grad = torch.tensor([0.1, -0.2, 0.3, -1.0]) * (1 if step % 2 else -0.5) * step
        optimizer.step()
    trained = p.detach().double().tolist()
    optimizer.eval()
    averaged = p.detach().double().tolist()
    row = lambda values: "{" + ", ".join(repr(v) for v in values) + "}"
    print(f'    {{R"({json.dumps(case)})",\n     {row(trained)},\n     {row(averaged)}}},')
print("};")
