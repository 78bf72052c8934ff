"""Writes adafactor.h: three steps of the Adafactor of Hugging Face's transformers, in fp32.

    pip install torch==2.11.0 transformers && python adafactor.py > adafactor.h
"""
import json

import torch
from transformers.optimization import Adafactor

CASES = [
    {},
    {"lr": 0.01, "relative_step": False, "scale_parameter": False},
    {"lr": 0.01, "relative_step": False, "beta1": 0.9, "weight_decay": 0.1},
    {"warmup_init": True, "clip_threshold": 0.5, "decay_rate": -0.7},
    {"eps": [1e-3, 0.1]},
]
print("// Written by adafactor.py, which see.\n#pragma once\n")
print("struct ExpectedAdafactor {\n  const char* params;\n  double values[9];  // a matrix of 2 x 3 and a vector of 3, after 3 steps\n};")
print("inline constexpr ExpectedAdafactor kExpectedAdafactor[] = {")
for case in CASES:
    matrix = torch.nn.Parameter(torch.tensor([[0.5, -1.0, 2.0], [0.25, 3.0, -0.125]]))
    vector = torch.nn.Parameter(torch.tensor([1.0, -0.5, 0.0]))
    given = dict(case)
    if "eps" in given:
        given["eps"] = tuple(given["eps"])
    optimizer = Adafactor([matrix, vector], **given)
    for step in range(1, 4):
        matrix.grad = torch.tensor([[0.1, -0.2, 0.3], [0.4, -0.5, 0.6]]) * step
        vector.grad = torch.tensor([-1.0, 0.5, 0.25]) / step
        optimizer.step()
    values = torch.cat([matrix.detach().flatten(), vector.detach()]).double().tolist()
    print(f'    {{R"({json.dumps(case)})",\n     {{{", ".join(repr(v) for v in values)}}}}},')
print("};")
