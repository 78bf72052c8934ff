// LAMB by plain loops.
#pragma once

#include "optimizers/group_case.h"

namespace gannet::test {

// FusedLamb's formulas, one number after the other, in T. In fp32 with the plugin's order of
// roundings, so that only the order of the sums differs.
template <class T>
struct LambReference {
  double lr = 1e-3, decay = 0, eps = 1e-8, beta1 = 0.9, beta2 = 0.999, max_coeff = 10, min_coeff = 0.01;
  bool eps_inside_sqrt = false, bias_correction = true;
  std::vector<T> p, m, v, u;
  std::vector<double> coeffs;

  void begin(const GroupCase& group) {
    for (const double value : group.values()) p.push_back(static_cast<T>(value));
    m.resize(p.size()), v.resize(p.size()), u.resize(p.size());
    coeffs.resize(group.tensors.size());
  }
  void step(const GroupCase& group) {
    // The betas of an fp32 run are fp32 numbers, for the reference in double too.
    const bool wide = group.types.param == GANNET_FLOAT64;
    const T keep1 = static_cast<T>(wide ? beta1 : static_cast<float>(beta1));
    const T keep2 = static_cast<T>(wide ? beta2 : static_cast<float>(beta2));
    const T inside = eps_inside_sqrt ? static_cast<T>(eps) : 0, outside = eps_inside_sqrt ? 0 : static_cast<T>(eps);
    for (size_t t = 0; t < group.tensors.size(); ++t) {
      const auto& tensor = group.tensors[t];
      double weights = 0, updates = 0;
      for (uint64_t i = tensor.offset; i < tensor.offset + tensor.numel; ++i) {
        const T g = static_cast<T>(group.grad.get(i)) * static_cast<T>(group.grad_scale);
        m[i] = std::fma(1 - keep1, g, keep1 * m[i]);
        v[i] = std::fma(1 - keep2, g * g, keep2 * v[i]);
        u[i] = std::fma(static_cast<T>(decay), p[i], m[i] / (std::sqrt(v[i] + inside) + outside));
        weights += double{p[i]} * double{p[i]};
        updates += double{u[i]} * double{u[i]};
      }
      coeffs[t] =
          weights == 0 || updates == 0 ? 1 : std::min(std::max(std::sqrt(weights) / std::sqrt(updates), min_coeff), max_coeff);
      double rate = lr * coeffs[t];
      if (bias_correction)
        rate *= std::sqrt(1 - std::pow(double{keep2}, double(group.steps))) / (1 - std::pow(double{keep1}, double(group.steps)));
      for (uint64_t i = tensor.offset; i < tensor.offset + tensor.numel; ++i) p[i] = std::fma(static_cast<T>(-rate), u[i], p[i]);
    }
  }
  std::vector<double> values() const { return {p.begin(), p.end()}; }
};

}  // namespace gannet::test
