"""Writes lookahead.h: 16 steps of pytorch_optimizer's Lookahead around torch.optim's AdamW and SGD over three tensors, in fp64 and
in fp32, and the slow weights after them (of the run in fp64). No k divides 16, so that they differ from the trained ones.

    pip install torch==2.11.0 pytorch_optimizer==4.1.0 && python lookahead.py > lookahead.h && clang-format -i lookahead.h
"""
import torch
from package_steps import flattened, train, write_header
from pytorch_optimizer import Lookahead

ADAMW = [
    {"lr": 0.05, "weight_decay": 0.0},
    {"lr": 0.05, "weight_decay": 0.3, "betas": [0.8, 0.95], "eps": 1e-6, "k": 3, "alpha": 0.8},
]
SGD = [
    {"lr": 0.05, "momentum": 0.9},
    {"lr": 0.02, "momentum": 0.8, "dampening": 0.25, "weight_decay": 0.1, "k": 7, "alpha": 0.25},
]


def expected(base, given):
    inner = {key: value for key, value in given.items() if key not in ("k", "alpha")}
    outer = {key: value for key, value in given.items() if key in ("k", "alpha")}
    results = {}
    for dtype in (torch.float64, torch.float32):
        parameters, optimizer = train(lambda p: Lookahead(base(p, **inner), **outer), given["lr"], 0, dtype)
        slow = [optimizer.state[p]["slow_params"] for p in parameters]
        results[dtype] = flattened(parameters), flattened(slow)
    return {"params": given, "in_fp64": results[torch.float64][0], "in_fp32": results[torch.float32][0],
            "slow": results[torch.float64][1]}


write_header("lookahead.py", [("kExpectedLookaheadAdamW", [expected(torch.optim.AdamW, case) for case in ADAMW]),
                              ("kExpectedLookaheadSgd", [expected(torch.optim.SGD, case) for case in SGD])])
