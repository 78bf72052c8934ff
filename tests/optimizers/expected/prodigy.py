"""Writes prodigy.h: 16 steps of Prodigy of its authors' package over three tensors, in fp64 and in fp32, and its estimate d after
them (of the run in fp64). A learning rate that warms up begins at 0: the package's constructor refuses 0, its step takes it.

With the default d0 of 1e-6 there is no run in fp32: its rounding of a parameter of size 1 is 6% of the first step, which the estimate
is made of, so that any two orders of roundings give other estimates.

    pip install torch==2.11.0 prodigyopt==1.1.2 && python prodigy.py > prodigy.h && clang-format -i prodigy.h
"""
import contextlib
import sys

import torch
from package_steps import flattened, train, write_header
from prodigyopt import Prodigy

CASES = [
    ({}, 0),
    ({"d0": 1e-3, "weight_decay": 0.02, "use_bias_correction": True, "safeguard_warmup": True, "d_coef": 2.0}, 4),
    ({"d0": 0.02, "weight_decay": 0.1, "decouple": False, "growth_rate": 1.1, "betas": [0.8, 0.95], "d_coef": 2.0}, 0),
    ({"d0": 0.005, "lr": 0.5, "beta3": 0.9, "use_bias_correction": True}, 3),
]

cases = []
for case, warmup in CASES:
    results = {}
    for dtype in (torch.float64, torch.float32) if case else (torch.float64,):
        with contextlib.redirect_stdout(sys.stderr):  # it prints a setting
            parameters, optimizer = train(lambda p: Prodigy(p, **case), case.get("lr", 1.0), warmup, dtype)
        results[dtype] = flattened(parameters), optimizer.param_groups[0]["d"]
    parameters, d = results[torch.float64]
    cases.append({"params": case, "warmup": warmup, "in_fp64": parameters, "in_fp32": results.get(torch.float32, (None, d))[0], "d": d})
write_header("prodigy.py", [("kExpectedProdigy", cases)])
