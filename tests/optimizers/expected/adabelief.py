"""Writes adabelief.h: 16 steps of AdaBelief of its authors' package over three tensors, in fp64 and in fp32. The rectified
rule leaves its momentum steps (n < 5) after step 5.

    pip install torch==2.11.0 adabelief-pytorch==0.2.1 && python adabelief.py > adabelief.h && clang-format -i adabelief.h
"""
import contextlib
import sys

import torch
from adabelief_pytorch import AdaBelief
from package_steps import flattened, train, write_header

CASES = [
    {"lr": 0.05},
    {"lr": 0.05, "weight_decay": 0.3, "rectify": False, "betas": [0.8, 0.95]},
    {"lr": 0.05, "weight_decay": 0.1, "weight_decouple": False, "degenerated_to_sgd": False, "betas": [0.9, 0.9], "eps": 1e-8},
    {"lr": 0.05, "weight_decay": 0.02, "fixed_decay": True},
]

cases = []
for case in CASES:
    results = {}
    for dtype in (torch.float64, torch.float32):
        with contextlib.redirect_stdout(sys.stderr):  # it prints its settings
            parameters, _ = train(lambda p: AdaBelief(p, print_change_log=False, **case), case["lr"], 0, dtype)
        results[dtype] = flattened(parameters)
    cases.append({"params": case, "in_fp64": results[torch.float64], "in_fp32": results[torch.float32]})
write_header("adabelief.py", [("kExpectedAdaBelief", cases)])
