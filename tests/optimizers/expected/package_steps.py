"""What the generators of adan.h, adabelief.h, lars.h, prodigy.h and lookahead.h share: three tensors, their gradients, and the table
that tests/optimizers/package_case.h declares.

The first values and the gradients are multiples of 1/8 that fp32 holds exactly; package_case.h has the same two functions.
"""
import json

import torch

SHAPES = [(3, 4), (5,), (2, 1, 3)]
NUMEL, STEPS = 23, 16


def first_value(i):
    return ((37 * i) % 23 - 11) / 8


# Each element's gradients have a mean of their own, so that the sum of the steps goes somewhere.
def gradient(step, i):
    return ((7 * step + 5 * i) % 11 - 5 + 4 * (i % 3 - 1)) / 4


def tensors_of(values, dtype):
    flat = torch.tensor(list(values), dtype=torch.float64).to(dtype)
    return [part.reshape(shape).clone() for part, shape in zip(flat.split([torch.Size(s).numel() for s in SHAPES]), SHAPES)]


def flattened(tensors):
    return torch.cat([t.detach().double().flatten() for t in tensors]).tolist()


def train(make, lr, warmup, dtype):
    """make(parameters) -> an optimizer. In step t of the `warmup` first ones, the learning rate is (t - 1) / warmup of lr."""
    parameters = [torch.nn.Parameter(t) for t in tensors_of(map(first_value, range(NUMEL)), dtype)]
    optimizer = make(parameters)
    for step in range(1, STEPS + 1):
        for p, g in zip(parameters, tensors_of((gradient(step, i) for i in range(NUMEL)), dtype)):
            p.grad = g
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1.0, (step - 1) / warmup) if warmup else lr
        optimizer.step()
    return parameters, optimizer


def write_header(script, tables):
    """tables: of (type, name, cases); a case has "params" and the fields of ExpectedSteps."""
    print(f"// Written by {script}, which see.\n#pragma once\n\n#include \"optimizers/package_case.h\"\n\nnamespace gannet::test {{\n")
    for name, cases in tables:
        print(f"inline constexpr ExpectedSteps {name}[] = {{")
        for case in cases:
            fields = [f'.params = R"({json.dumps(case["params"])})"']
            for field in ("warmup", "in_fp64", "in_fp32", "slow", "d"):
                value = case.get(field)
                if isinstance(value, list):
                    fields.append(f".{field} = {{{', '.join(repr(v) for v in value)}}}")
                elif value:
                    fields.append(f".{field} = {value!r}")
            print(f"    {{{', '.join(fields)}}},")
        print("};")
    print("\n}  // namespace gannet::test")
