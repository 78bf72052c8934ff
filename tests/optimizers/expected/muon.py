"""Steps of DeepSpeed's Muon (runtime/zero/muon/original_muon.py) by its formulas, in double, as the table that muon_test.cpp
compares with: the iteration on the matrix itself, which "gram" equals but for rounding. No package is needed:

    python3 tests/optimizers/expected/muon.py > tests/optimizers/expected/muon.h
    clang-format -i tests/optimizers/expected/muon.h
"""
import math

STEPS, MOST = 3, 24


def start(i):
    return math.ldexp((13 * i) % 17 - 8, -3)  # exact in every type


def gradient(step, i):
    return math.ldexp((7 * step + 5 * i * i + i) % 23 - 11, -2)


def product(a, b):
    return [[math.fsum(a[i][k] * b[k][j] for k in range(len(b))) for j in range(len(b[0]))] for i in range(len(a))]


def transposed(a):
    return [list(column) for column in zip(*a)]


def combined(alpha, a, beta, b):
    return [[alpha * x + beta * y for x, y in zip(left, right)] for left, right in zip(a, b)]


def newton_schulz(x, steps):
    a, b, c = 3.4445, -4.7750, 2.0315
    is_tall = len(x) > len(x[0])
    if is_tall:
        x = transposed(x)
    norm = math.sqrt(math.fsum(v * v for row in x for v in row)) + 1e-7
    x = [[v / norm for v in row] for row in x]
    for _ in range(steps):
        gram = product(x, transposed(x))
        x = combined(a, x, 1, product(combined(b, gram, c, product(gram, gram)), x))
    return transposed(x) if is_tall else x


def muon(shape, lr, momentum, weight_decay, ns_steps, nesterov):
    rows, columns = (shape[0], math.prod(shape[1:])) if len(shape) == 4 else shape
    numel = rows * columns
    p, m = [start(i) for i in range(numel)], [0.0] * numel
    for step in range(1, STEPS + 1):
        g = [gradient(step, i) for i in range(numel)]
        m = [momentum * m[i] + (1 - momentum) * g[i] for i in range(numel)]
        u = [(1 - momentum) * g[i] + momentum * m[i] for i in range(numel)] if nesterov else m
        u = newton_schulz([u[i * columns:(i + 1) * columns] for i in range(rows)], ns_steps)
        scale = math.sqrt(max(1, shape[-2] / shape[-1]))
        p = [p[i] * (1 - lr * weight_decay) - lr * scale * u[i // columns][i % columns] for i in range(numel)]
    return p


CASES = [
    dict(shape=(4, 4)),
    dict(shape=(3, 6)),
    dict(shape=(6, 3)),
    dict(shape=(6, 3), nesterov=False, momentum=0.5),
    dict(shape=(2, 7), weight_decay=0.5),
    dict(shape=(7, 2), ns_steps=1),
    dict(shape=(7, 2), ns_steps=2),
    dict(shape=(3, 8), ns_steps=3),
    dict(shape=(3, 1, 3, 2)),
    dict(shape=(2, 3, 2, 2)),
]

print(f"""// Written by muon.py, which see.
#pragma once

struct ExpectedMuon {{
  int dimensions;
  int shape[4];
  double lr, momentum, weight_decay;
  int ns_steps;
  bool nesterov;
  double param[{MOST}];  // after {STEPS} steps
}};
inline constexpr double kMuonStart[] = {{{", ".join(repr(start(i)) for i in range(MOST))}}};
inline constexpr double kMuonGradients[{STEPS}][{MOST}] = {{""")
for step in range(1, STEPS + 1):
    print(f"    {{{', '.join(repr(gradient(step, i)) for i in range(MOST))}}},")
print("};\ninline constexpr ExpectedMuon kExpectedMuon[] = {")
for case in CASES:
    full = dict(lr=0.1, momentum=0.95, weight_decay=0.0, ns_steps=5, nesterov=True) | case
    shape = list(full["shape"]) + [0] * (4 - len(full["shape"]))
    print(f"    {{{len(full['shape'])}, {{{', '.join(map(str, shape))}}}, "
          f"{full['lr']}, {full['momentum']}, {full['weight_decay']}, {full['ns_steps']}, {str(full['nesterov']).lower()},\n     {{{', '.join(map(repr, muon(**full)))}}}}},")
print("};")
