// Muon by plain loops, and how far rounding in fp32 may lead from it.
#pragma once

#include "optimizers/group_case.h"

namespace gannet::test {

// The orthogonalization's error. A step multiplies an error by at most the slope of a x + b x^3 + c x^5 at 0, 3.4445: five steps
// by 485. What a step adds is the rounding of three products of matrices of norm about 1, each a few units times the root of the
// depth. In Frobenius norm, relative to the update, whose singular values are near 1.
inline double unit_of_orthogonalization(uint64_t depth) { return 485 * 3 * std::sqrt(static_cast<double>(depth)) * 0x1p-24; }

// The iteration on X itself, by plain loops in T.
template <class T>
struct MuonReference {
  double lr = 0.02, momentum = 0.95, decay = 0;
  bool nesterov = true;
  int ns_steps = 5;
  uint64_t rows = 0, columns = 0;
  double scale = 1;
  std::vector<T> p, m;

  using Matrix = std::vector<T>;
  // [n, k] times [k, m], or the second one transposed.
  static Matrix product(const Matrix& a, const Matrix& b, uint64_t n, uint64_t k, uint64_t m, bool b_transposed = false) {
    Matrix c(n * m);
    for (uint64_t i = 0; i < n; ++i)
      for (uint64_t j = 0; j < m; ++j) {
        T sum = 0;
        for (uint64_t l = 0; l < k; ++l) sum += a[i * k + l] * (b_transposed ? b[j * k + l] : b[l * m + j]);
        c[i * m + j] = sum;
      }
    return c;
  }
  static Matrix transposed(const Matrix& a, uint64_t n, uint64_t m) {
    Matrix b(a.size());
    for (uint64_t i = 0; i < n; ++i)
      for (uint64_t j = 0; j < m; ++j) b[j * n + i] = a[i * m + j];
    return b;
  }
  Matrix orthogonalized(Matrix x) const {
    const bool is_tall = rows > columns;
    const uint64_t n = std::min(rows, columns), k = std::max(rows, columns);
    if (is_tall) x = transposed(x, rows, columns);
    double squares = 0;
    for (const T value : x) squares += double{value} * double{value};
    for (T& value : x) value *= static_cast<T>(1 / (std::sqrt(squares) + 1e-7));
    for (int step = 0; step < ns_steps; ++step) {
      const Matrix a = product(x, x, n, k, n, true);
      Matrix b = product(a, a, n, n, n);
      for (uint64_t i = 0; i < b.size(); ++i) b[i] = static_cast<T>(-4.7750) * a[i] + static_cast<T>(2.0315) * b[i];
      const Matrix y = product(b, x, n, n, k);
      for (uint64_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>(3.4445) * x[i] + y[i];
    }
    return is_tall ? transposed(x, n, k) : x;
  }
  void begin(const GroupCase& group) {
    const auto& tensor = group.tensors[0];
    rows = static_cast<uint64_t>(tensor.shape[0]);
    columns = tensor.numel / rows;
    scale = std::sqrt(std::max(1.0, static_cast<double>(rows) / static_cast<double>(columns)));
    for (uint64_t i = 0; i < tensor.numel; ++i) p.push_back(static_cast<T>(group.param.get(i)));
    m.resize(p.size());
  }
  void step(const GroupCase& group) {
    Matrix u(p.size());
    for (uint64_t i = 0; i < p.size(); ++i) {
      const T g = static_cast<T>(group.grad.get(i)) * static_cast<T>(group.grad_scale);
      m[i] += static_cast<T>(1 - momentum) * (g - m[i]);
      u[i] = nesterov ? m[i] + static_cast<T>(1 - momentum) * (g - m[i]) : m[i];
    }
    u = orthogonalized(u);
    for (uint64_t i = 0; i < p.size(); ++i) p[i] = p[i] * static_cast<T>(1 - lr * decay) + static_cast<T>(-lr * scale) * u[i];
  }
  std::vector<double> values() const { return {p.begin(), p.end()}; }
};

inline const LoadedPlugin& muon() {
  static const LoadedPlugin plugin("optimizer_muon", "Muon");
  return plugin;
}

}  // namespace gannet::test
