"""Steps of DeepSpeed's FusedLamb (csrc/lamb/fused_lamb_cuda_kernel.cu, ops/lamb/fused_lamb.py) by its formulas, in double, as the
table that lamb_test.cpp compares with. No package is needed:

    python3 tests/optimizers/expected/lamb.py > tests/optimizers/expected/lamb.h
    clang-format -i tests/optimizers/expected/lamb.h
"""
import math

NUMEL, STEPS = 5, 3
PARAM = [0.5, -1.25, 2.0, 0.0, -0.75]


def gradient(step, i):
    return math.ldexp((7 * step + 5 * i) % 11 - 5, -2)  # exact in every type


def lamb(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, bias_correction=True, eps_inside_sqrt=False, max_coeff=10.0,
         min_coeff=0.01):
    p, m, v = list(PARAM), [0.0] * NUMEL, [0.0] * NUMEL
    for step in range(1, STEPS + 1):
        g = [gradient(step, i) for i in range(NUMEL)]
        m = [betas[0] * m[i] + (1 - betas[0]) * g[i] for i in range(NUMEL)]
        v = [betas[1] * v[i] + (1 - betas[1]) * g[i] * g[i] for i in range(NUMEL)]
        denominator = [math.sqrt(x + eps) if eps_inside_sqrt else math.sqrt(x) + eps for x in v]
        update = [m[i] / denominator[i] + weight_decay * p[i] for i in range(NUMEL)]
        w_norm, u_norm = math.hypot(*p), math.hypot(*update)
        coeff = 1.0
        if w_norm != 0 and u_norm != 0:
            coeff = min(max(w_norm / u_norm, min_coeff), max_coeff)
        step_size = lr * math.sqrt(1 - betas[1] ** step) / (1 - betas[0] ** step) if bias_correction else lr
        p = [p[i] - step_size * coeff * update[i] for i in range(NUMEL)]
    return p, coeff


CASES = [
    dict(lr=0.1),
    dict(lr=0.1, weight_decay=0.3),
    dict(lr=0.1, weight_decay=0.3, bias_correction=False),
    dict(lr=0.1, eps=0.01, eps_inside_sqrt=True),
    dict(lr=0.1, eps=0.01, betas=(0.5, 0.75)),
    dict(lr=0.1, max_coeff=0.125),
    dict(lr=0.1, min_coeff=8.0),
]


def row(numbers):
    return "{" + ", ".join(f"{x!r}" for x in numbers) + "}"


print(f"""// Written by lamb.py, which see.
#pragma once

struct ExpectedLamb {{
  double lr, beta1, beta2, eps, weight_decay;
  bool bias_correction, eps_inside_sqrt;
  double max_coeff, min_coeff;
  double param[{NUMEL}], coeff;  // after {STEPS} steps
}};
inline constexpr double kLambStart[] = {row(PARAM)};
inline constexpr double kLambGradients[{STEPS}][{NUMEL}] = {{""")
for step in range(1, STEPS + 1):
    print(f"    {row(gradient(step, i) for i in range(NUMEL))},")
print("};\ninline constexpr ExpectedLamb kExpectedLamb[] = {")
for case in CASES:
    full = dict(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, bias_correction=True, eps_inside_sqrt=False,
                max_coeff=10.0, min_coeff=0.01) | case
    param, coeff = lamb(**full)
    flags = ", ".join(str(full[key]).lower() for key in ("bias_correction", "eps_inside_sqrt"))
    print(f"    {{{full['lr']}, {full['betas'][0]}, {full['betas'][1]}, {full['eps']}, {full['weight_decay']}, {flags}, "
          f"{full['max_coeff']}, {full['min_coeff']},\n     {row(param)},\n     {coeff!r}}},")
print("};")
