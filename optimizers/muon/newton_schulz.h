// The matrix with all singular values near 1 that is nearest in direction to a given one: five steps (by default) of the quintic
// Newton-Schulz iteration, X <- a X + (b A + c A^2) X with A = X X^T (Jordan et al. 2024, Muon), in fp32.
//
//   NewtonSchulz orthogonalize(host);
//   const float* u = orthogonalize(x, rows, columns, {.steps = 5, .gram = true});      // x is overwritten
#pragma once

#include "optimizers/muon/product.h"

namespace gannet::rules {

class NewtonSchulz {
 public:
  struct Options {
    uint64_t steps = 5;
    // Iterates on R = X X^T, of the smaller dimension, and multiplies X once before the third step and once at the end: fewer
    // products of the longer dimension. Equal to the plain iteration but for rounding. Square matrices take the plain one.
    bool gram = true;
  };
  explicit NewtonSchulz(const sdk::HostServices& host) : host_(host), multiply_(host) {}

  // x [rows, columns] row-major, scratch of the caller; its norm is at most 1. The result is in x or in memory of this object,
  // until the next call.
  const float* operator()(float* x, uint64_t rows, uint64_t columns, const Options& options);

 private:
  struct Shape {
    uint64_t rows, columns;
    bool is_tall() const { return rows > columns; }
    uint64_t small() const { return is_tall() ? columns : rows; }
    uint64_t large() const { return is_tall() ? rows : columns; }
  };
  void make_gram(const float* x, const Shape& shape, float* r);
  void apply(const float* q, const float* x, const Shape& shape, float beta, float* y);
  void symmetric(const float* a, const float* b, uint64_t n, float beta, const float* d, float* c, float alpha = 1);
  const float* plain(float* x, float* y, const Shape& shape, uint64_t steps);
  const float* by_gram(float* x, float* y, const Shape& shape, uint64_t steps);

  sdk::HostServices host_;
  Multiplier multiply_;
  Scratch other_, gram_, polynomial_, product_, spare_;  // [rows, columns], and four of [small, small]
};

}  // namespace gannet::rules
