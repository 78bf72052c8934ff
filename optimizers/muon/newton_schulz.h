// Orthogonalizes a matrix: returns one with the same singular vectors, and singular values all
// near 1. Runs five steps (by default) of the quintic Newton-Schulz iteration, X <- a X + (b A + c
// A^2) X with A = X X^T (Jordan et al. 2024, Muon), in fp32.
//
//   NewtonSchulz<HostArithmetic> orthogonalize(host);
//   const float* u = orthogonalize(x, rows, columns, {.steps = 5, .gram = true});      // x is overwritten
//
// Each device provides its own arithmetic:
//   float* floats(size_t slot, uint64_t count);      memory that is kept from one call to the next
//   void multiply(const Product& product);
//   void add_to_diagonal(const float* z, uint64_t n, float a, float* q);      q = z + a I, [n, n]
#pragma once

#include <utility>

#include "optimizers/muon/product.h"

namespace gannet::rules {

template <class Arithmetic>
class NewtonSchulz {
 public:
  struct Options {
    uint64_t steps = 5;
    // Whether to iterate on R = X X^T, which has the smaller dimension, and to multiply X only once
    // before the third step and once at the end: fewer products along the longer dimension. The
    // result equals that of the plain iteration up to rounding. Square matrices use the plain
    // iteration.
    bool gram = true;
  };
  template <class... Arguments>
  explicit NewtonSchulz(Arguments&&... arguments) : arithmetic_(std::forward<Arguments>(arguments)...) {}
  Arithmetic& arithmetic() { return arithmetic_; }

  // x [rows, columns] is row-major and is overwritten; its norm is at most 1. The result is in x or
  // in memory of this object, and is valid until the next call.
  const float* operator()(float* x, uint64_t rows, uint64_t columns, const Options& options) {
    const Shape shape{rows, columns};
    float* y = arithmetic_.floats(kOther, rows * columns);
    if (options.gram && rows != columns) return by_gram(x, y, shape, options.steps);
    return plain(x, y, shape, options.steps);
  }

 private:
  static constexpr float kA = 3.4445f, kB = -4.7750f, kC = 2.0315f;
  static constexpr uint64_t kRestart = 2;  // the step before which X is multiplied and its Gram matrix recomputed
  enum Memory : size_t { kOther, kGram, kPolynomial, kProduct, kSpare };  // one of [rows, columns], and four of [small, small]

  struct Shape {
    uint64_t rows, columns;
    bool is_tall() const { return rows > columns; }
    uint64_t small() const { return is_tall() ? columns : rows; }
    uint64_t large() const { return is_tall() ? rows : columns; }
  };

  // Computes X X^T, or X^T X if X is tall, which is the smaller of the two.
  void make_gram(const float* x, const Shape& shape, float* r) {
    Product p{};
    p.rows = p.columns = shape.small();
    p.depth = shape.large();
    p.a = shape.is_tall() ? transposed(x, shape.columns) : row_major(x, shape.columns);
    p.b = shape.is_tall() ? row_major(x, shape.columns) : transposed(x, shape.columns);
    p.c = r;
    p.alpha = 1;
    p.is_symmetric = true;
    arithmetic_.multiply(p);
  }

  // Computes Y = Q X + beta X, or X Q + beta X if X is tall; Q is symmetric.
  void apply(const float* q, const float* x, const Shape& shape, float beta, float* y) {
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
    arithmetic_.multiply(p);
  }

  // Computes C = alpha A B + beta D, for polynomials of one symmetric matrix. These commute, so the
  // products are symmetric.
  void symmetric(const float* a, const float* b, uint64_t n, float beta, const float* d, float* c, float alpha = 1) {
    Product p{};
    p.rows = p.columns = p.depth = n;
    p.a = row_major(a, n);
    p.b = row_major(b, n);
    p.c = c;
    p.alpha = alpha;
    p.beta = beta;
    p.d = d;
    p.is_symmetric = true;
    arithmetic_.multiply(p);
  }

  const float* plain(float* x, float* y, const Shape& shape, uint64_t steps) {
    const uint64_t n = shape.small();
    float* r = arithmetic_.floats(kGram, n * n);
    float* z = arithmetic_.floats(kPolynomial, n * n);
    for (uint64_t step = 0; step < steps; ++step) {
      make_gram(x, shape, r);
      symmetric(r, r, n, kB, r, z, kC);  // Z = b R + c R^2
      apply(z, x, shape, kA, y);
      std::swap(x, y);
    }
    return x;
  }

  // After k steps X_k = Q_k X, where Q <- (a I + Z) Q and R <- (a I + Z) R (a I + Z). All of these
  // are polynomials of R.
  const float* by_gram(float* x, float* y, const Shape& shape, uint64_t steps) {
    const uint64_t n = shape.small();
    float* r = arithmetic_.floats(kGram, n * n);
    float* z = arithmetic_.floats(kPolynomial, n * n);
    float* q = arithmetic_.floats(kProduct, n * n);
    float* spare = arithmetic_.floats(kSpare, n * n);
    bool has_q = false;  // if false, Q is the identity
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
        arithmetic_.add_to_diagonal(z, n, kA, q);
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

  Arithmetic arithmetic_;
};

}  // namespace gannet::rules
