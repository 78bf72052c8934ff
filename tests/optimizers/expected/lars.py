"""Writes lars.h: 16 steps of pytorch_optimizer's LARS over a matrix, a vector (plain momentum SGD) and a 3-d tensor, in fp64 and in
fp32.

    pip install torch==2.11.0 pytorch_optimizer==4.1.0 && python lars.py > lars.h && clang-format -i lars.h
"""
import torch
from package_steps import flattened, train, write_header
from pytorch_optimizer import LARS

CASES = [
    {"lr": 0.05, "trust_coefficient": 0.5},
    {"lr": 0.05, "trust_coefficient": 0.5, "weight_decay": 0.3, "momentum": 0.8, "dampening": 0.25},
    {"lr": 0.05, "trust_coefficient": 0.1, "weight_decay": 0.1, "nesterov": True},
]

cases = []
for case in CASES:
    results = {}
    for dtype in (torch.float64, torch.float32):
        parameters, _ = train(lambda p: LARS(p, foreach=False, **case), case["lr"], 0, dtype)
        results[dtype] = flattened(parameters)
    cases.append({"params": case, "in_fp64": results[torch.float64], "in_fp32": results[torch.float32]})
write_header("lars.py", [("kExpectedLars", cases)])
