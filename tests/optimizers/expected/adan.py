"""Writes adan.h: 16 steps of Adan over three tensors, in fp64 and in fp32.

    pip install torch==2.11.0 pytorch_optimizer==4.1.0 && python adan.py > adan.h && clang-format -i adan.h

pytorch_optimizer's Adan is the rule of the authors' package (sail-sg/Adan): the difference to the previous gradient, the square of
(g + beta2 difference), the proximal decay; its `weight_decouple` is that package's `no_prox`. Each case is also trained by the
formulas, in tensor operations, and has to come out the same.
"""
import torch
from package_steps import flattened, train, write_header
from pytorch_optimizer import Adan

CASES = [
    {"lr": 0.05},
    {"lr": 0.05, "weight_decay": 0.5},
    {"lr": 0.05, "weight_decay": 0.5, "no_prox": True, "betas": [0.9, 0.8, 0.95], "eps": 1e-3},
]


class Formulas(torch.optim.Optimizer):
    """Xie et al. 2022, algorithm 1, as sail-sg/Adan's adan.py has it."""

    def __init__(self, params, lr, betas=(0.98, 0.92, 0.99), eps=1e-8, weight_decay=0.0, no_prox=False):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, no_prox=no_prox, step=0))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            group["step"] += 1
            t, lr, decay = group["step"], group["lr"], group["weight_decay"]
            b1, b2, b3 = group["betas"]
            for p in group["params"]:
                g, state = p.grad, self.state[p]
                if not state:
                    state.update(m=torch.zeros_like(p), v=torch.zeros_like(p), n=torch.zeros_like(p), previous=g.clone())
                diff = g - state["previous"]
                state["m"] = b1 * state["m"] + (1 - b1) * g
                state["v"] = b2 * state["v"] + (1 - b2) * diff
                state["n"] = b3 * state["n"] + (1 - b3) * (g + b2 * diff) ** 2
                u = (state["m"] / (1 - b1**t) + b2 * state["v"] / (1 - b2**t)) / ((state["n"] / (1 - b3**t)).sqrt() + group["eps"])
                p.copy_((1 - lr * decay) * p - lr * u if group["no_prox"] else (p - lr * u) / (1 + lr * decay))
                state["previous"] = g.clone()


def package(parameters, given):
    renamed = {("weight_decouple" if key == "no_prox" else key): value for key, value in given.items()}
    return Adan(parameters, foreach=False, **renamed)


cases = []
for case in CASES:
    results = {}
    for dtype in (torch.float64, torch.float32):
        parameters, _ = train(lambda p: package(p, case), case["lr"], 0, dtype)
        results[dtype] = flattened(parameters)
    by_formulas, _ = train(lambda p: Formulas(p, **case), case["lr"], 0, torch.float64)
    assert max(abs(a - b) for a, b in zip(flattened(by_formulas), results[torch.float64])) < 1e-13
    cases.append({"params": case, "in_fp64": results[torch.float64], "in_fp32": results[torch.float32]})
write_header("adan.py", [("kExpectedAdan", cases)])
