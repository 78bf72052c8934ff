#include "optimizers/muon/newton_schulz.h"

#include <utility>

namespace gannet::rules {
namespace {

constexpr float kA = 3.4445f, kB = -4.7750f, kC = 2.0315f;
constexpr uint64_t kRestart = 2;  // the step before which X is multiplied and its Gram matrix made again

}  // namespace

// X X^T, or X^T X where X is tall: of the smaller dimension.
void NewtonSchulz::make_gram(const float* x, const Shape& shape, float* r) {
  Product p{};
  p.rows = p.columns = shape.small();
  p.depth = shape.large();
  p.a = shape.is_tall() ? transposed(x, shape.columns) : row_major(x, shape.columns);
  p.b = shape.is_tall() ? row_major(x, shape.columns) : transposed(x, shape.columns);
  p.c = r;
  p.alpha = 1;
  p.is_symmetric = true;
  multiply_(p);
}

// Y = Q X + beta X, or X Q + beta X where X is tall; Q is symmetric.
void NewtonSchulz::apply(const float* q, const float* x, const Shape& shape, float beta, float* y) {
  Product p{};
  p.rows = shape.rows;
  p.columns = shape.columns;
  p.depth = shape.small();
  const Operand left = row_major(q, shape.small()), right = row_major(x, shape.columns);
  p.a = shape.is_tall() ? right : left;
  p.b = shape.is_tall() ? left : right;
  p.c = y;
  p.alpha = 1;
  p.beta = beta;
  p.d = beta != 0 ? x : nullptr;
  multiply_(p);
}

// C = alpha A B + beta D of polynomials of one symmetric matrix: they commute, so their products are symmetric.
void NewtonSchulz::symmetric(const float* a, const float* b, uint64_t n, float beta, const float* d, float* c, float alpha) {
  Product p{};
  p.rows = p.columns = p.depth = n;
  p.a = row_major(a, n);
  p.b = row_major(b, n);
  p.c = c;
  p.alpha = alpha;
  p.beta = beta;
  p.d = d;
  p.is_symmetric = true;
  multiply_(p);
}

const float* NewtonSchulz::plain(float* x, float* y, const Shape& shape, uint64_t steps) {
  const uint64_t n = shape.small();
  float* r = gram_.floats(n * n);
  float* z = polynomial_.floats(n * n);
  for (uint64_t step = 0; step < steps; ++step) {
    make_gram(x, shape, r);
    symmetric(r, r, n, kB, r, z, kC);  // Z = b R + c R^2
    apply(z, x, shape, kA, y);
    std::swap(x, y);
  }
  return x;
}

// After k steps X_k = Q_k X with Q <- (a I + Z) Q, and R <- (a I + Z) R (a I + Z). All of them are polynomials of R.
const float* NewtonSchulz::by_gram(float* x, float* y, const Shape& shape, uint64_t steps) {
  const uint64_t n = shape.small();
  float* r = gram_.floats(n * n);
  float* z = polynomial_.floats(n * n);
  float* q = product_.floats(n * n);
  float* spare = spare_.floats(n * n);
  bool has_q = false;  // else Q is the identity
  make_gram(x, shape, r);
  for (uint64_t step = 0; step < steps; ++step) {
    if (step == kRestart) {
      apply(q, x, shape, 0, y);
      std::swap(x, y);
      make_gram(x, shape, r);
      has_q = false;
    }
    symmetric(r, r, n, kB, r, z, kC);
    if (has_q) {
      symmetric(z, q, n, kA, q, spare);
      std::swap(q, spare);
    } else {
      host_.parallel_for(n, 64, [&](uint64_t begin, uint64_t end) {
        for (uint64_t i = begin; i < end; ++i) {
          for (uint64_t j = 0; j < n; ++j) q[i * n + j] = z[i * n + j];
          q[i * n + i] += kA;
        }
      });
      has_q = true;
    }
    if (step + 1 < steps && step + 1 != kRestart) {
      symmetric(z, r, n, kA, r, spare);
      symmetric(z, spare, n, kA, spare, r);
    }
  }
  apply(q, x, shape, 0, y);
  return y;
}

const float* NewtonSchulz::operator()(float* x, uint64_t rows, uint64_t columns, const Options& options) {
  const Shape shape{rows, columns};
  float* y = other_.floats(rows * columns);
  if (options.gram && rows != columns) return by_gram(x, y, shape, options.steps);
  return plain(x, y, shape, options.steps);
}

}  // namespace gannet::rules
