// Kernels for GELU, layer norm, bias, dropout and residual, which work row by row.
#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "nn/rows.h"

// Highway requires this order of directives.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/row_kernels.cpp"
#include <hwy/foreach_target.h>

#include "nn/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gannet::nn::HWY_NAMESPACE {

template <class D>
HWY_INLINE Lanes<D> number(D, double value) {
  return Lanes<D>(static_cast<hn::TFromD<D>>(value));
}

template <class T>
void bias_gelu_rows(const GeluRows<T>& of, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    T *inter = of.inter + row * of.columns, *activated = of.activated + row * of.columns;
    along<T>(of.columns, [&](auto d, int64_t i) HWY_ATTR {
      auto x = load_lanes(d, inter + i);
      if (of.bias) {
        x = x + load_lanes(d, of.bias + i);
        store_lanes(d, x, inter + i);
      }
      if (of.is_tanh) {
        store_lanes(d, gelu_tanh(x), activated + i);
      } else {
        const auto z = x * number(d, 0.70710678118654752440);
        store_lanes(d, gelu_erf(x, erf_of(z, exp(-(z * z)))), activated + i);
      }
    });
  }
}

template <class T>
void gelu_backward_rows(const GeluBackwardRows<T>& of, int64_t begin, int64_t end, T* sums) {
  for (int64_t row = begin; row < end; ++row) {
    const T* inter = of.inter + row * of.columns;
    T* gradient = of.gradient + row * of.columns;
    along<T>(of.columns, [&](auto d, int64_t i) HWY_ATTR {
      const auto x = load_lanes(d, inter + i);
      auto derivative = x;
      if (of.is_tanh) {
        derivative = gelu_tanh_derivative(x);
      } else {
        const auto z = x * number(d, 0.70710678118654752440);
        const auto falls = exp(-(z * z));
        derivative = gelu_erf_derivative(x, erf_of(z, falls), falls);
      }
      const auto result = load_lanes(d, gradient + i) * derivative;
      store_lanes(d, result, gradient + i);
      store_lanes(d, load_lanes(d, sums + i) + result, sums + i);
    });
  }
}

// Normalizes a row. Mean and variance take two passes over the row, while it is in the first-level
// cache.
template <class T>
HWY_INLINE void norm_row(const T* x, int64_t columns, const Norm<T>& norm, T* output, T* mean_out, T* rstd_out) {
  Total<T> sum(0), squares(0);
  along<T>(columns, [&](auto d, int64_t i) HWY_ATTR { add_to(sum, load_lanes(d, x + i)); });
  const T mean = sum.sum() / static_cast<T>(columns);
  along<T>(columns, [&](auto d, int64_t i) HWY_ATTR {
    const auto distance = load_lanes(d, x + i) - Lanes<decltype(d)>(mean);
    add_to(squares, distance * distance);
  });
  const T rstd = T(1) / std::sqrt(squares.sum() / static_cast<T>(columns) + static_cast<T>(norm.eps));
  along<T>(columns, [&](auto d, int64_t i) HWY_ATTR {
    using V = Lanes<decltype(d)>;
    const V hat = normalized(load_lanes(d, x + i), V(mean), V(rstd));
    store_lanes(d, fma(hat, load_lanes(d, norm.gamma + i), load_lanes(d, norm.beta + i)), output + i);
  });
  if (mean_out) *mean_out = mean;
  if (rstd_out) *rstd_out = rstd;
}

template <class T>
void norm_rows(const NormRows<T>& of, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row)
    norm_row(of.input + row * of.columns, of.columns, of.norm, of.output + row * of.columns, of.mean ? of.mean + row : nullptr,
             of.rstd ? of.rstd + row : nullptr);
}

template <class T>
void residual_rows(const ResidualRows<T>& of, int64_t begin, int64_t end) {
  std::vector<uint32_t> words(of.dropout.is_on() ? (of.columns + 63) / 64 * 64 : 0);
  const uint32_t threshold = of.dropout.threshold();
  const double scale = of.dropout.scale();
  for (int64_t row = begin; row < end; ++row) {
    T* branch = of.branch + row * of.columns;
    const T* residual = of.residual + row * of.columns;
    if (of.dropout.is_on()) words_of_row(of.dropout, row, 0, of.columns, words.data());
    along<T>(of.columns, [&](auto d, int64_t i) HWY_ATTR {
      const auto x = load_lanes(d, branch + i) + load_lanes(d, of.bias + i);
      const auto y = load_lanes(d, residual + i);
      if (of.dropout.is_on())
        store_lanes(d, fma(kept(d, x, words.data() + i, threshold), number(d, scale), y), branch + i);
      else
        store_lanes(d, x + y, branch + i);
    });
    if (of.norm) norm_row(branch, of.columns, *of.norm, of.output + row * of.columns, of.mean + row, of.rstd + row);
  }
}

template <class T>
void norm_backward_rows(const NormBackwardRows<T>& rows, int64_t begin, int64_t end, T* sums) {
  const NormBackward<T>& of = rows.of;
  const Norm<T>& norm = rows.norm;
  const int64_t columns = rows.columns;
  T *gamma_sums = sums, *beta_sums = sums + columns;
  for (int64_t row = begin; row < end; ++row) {
    const T *gradient = of.gradient + row * columns, *values = of.kept + row * columns;
    const T* residual = of.residual ? of.residual + row * columns : nullptr;
    const T mean = of.mean[row], rstd = of.rstd[row];
    T* result = rows.result + row * columns;
    const auto hat = [&](auto d, int64_t i) HWY_ATTR {
      using V = Lanes<decltype(d)>;
      const V value = load_lanes(d, values + i);
      return of.is_output ? normalized_from_output(value, load_lanes(d, norm.gamma + i), load_lanes(d, norm.beta + i))
                          : normalized(value, V(mean), V(rstd));
    };
    Total<T> sum(0), product(0);
    along<T>(columns, [&](auto d, int64_t i) HWY_ATTR {
      const auto x = hat(d, i);
      const auto g = load_lanes(d, gradient + i);
      const auto scaled = g * load_lanes(d, norm.gamma + i);
      add_to(sum, scaled);
      add_to(product, scaled * x);
      store_lanes(d, fma(g, x, load_lanes(d, gamma_sums + i)), gamma_sums + i);
      store_lanes(d, load_lanes(d, beta_sums + i) + g, beta_sums + i);
    });
    const T mean_scaled = sum.sum() / static_cast<T>(columns), mean_product = product.sum() / static_cast<T>(columns);
    along<T>(columns, [&](auto d, int64_t i) HWY_ATTR {
      using V = Lanes<decltype(d)>;
      const V scaled = load_lanes(d, gradient + i) * load_lanes(d, norm.gamma + i);
      V x = norm_input_gradient(scaled, hat(d, i), V(rstd), V(mean_scaled), V(mean_product));
      if (residual) x = x + load_lanes(d, residual + i);
      store_lanes(d, x, result + i);
    });
  }
}

template <class T>
void dropout_backward_rows(const DropoutRows<T>& of, int64_t begin, int64_t end, T* sums) {
  std::vector<uint32_t> words(of.dropout.is_on() ? (of.columns + 63) / 64 * 64 : 0);
  const uint32_t threshold = of.dropout.threshold();
  const double scale = of.dropout.scale();
  for (int64_t row = begin; row < end; ++row) {
    const T* gradient = of.gradient + row * of.columns;
    if (of.dropout.is_on()) words_of_row(of.dropout, row, 0, of.columns, words.data());
    along<T>(of.columns, [&](auto d, int64_t i) HWY_ATTR {
      auto x = load_lanes(d, gradient + i);
      if (of.dropout.is_on()) {
        x = kept(d, x, words.data() + i, threshold) * number(d, scale);
        store_lanes(d, x, of.result + row * of.columns + i);
      }
      store_lanes(d, load_lanes(d, sums + i) + x, sums + i);
    });
  }
}

#define GANNET_NN_ROWS(T, name)                                                                                  \
  void gelu_##name(const GeluRows<T>& of, int64_t begin, int64_t end) { bias_gelu_rows(of, begin, end); }        \
  void gelu_backward_##name(const GeluBackwardRows<T>& of, int64_t begin, int64_t end, T* sums) {                \
    gelu_backward_rows(of, begin, end, sums);                                                                    \
  }                                                                                                              \
  void norm_##name(const NormRows<T>& of, int64_t begin, int64_t end) { norm_rows(of, begin, end); }             \
  void residual_##name(const ResidualRows<T>& of, int64_t begin, int64_t end) { residual_rows(of, begin, end); } \
  void norm_backward_##name(const NormBackwardRows<T>& of, int64_t begin, int64_t end, T* sums) {                \
    norm_backward_rows(of, begin, end, sums);                                                                    \
  }                                                                                                              \
  void dropout_backward_##name(const DropoutRows<T>& of, int64_t begin, int64_t end, T* sums) {                  \
    dropout_backward_rows(of, begin, end, sums);                                                                 \
  }
GANNET_NN_ROWS(float, float)
GANNET_NN_ROWS(double, double)
#undef GANNET_NN_ROWS

}  // namespace gannet::nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gannet::nn {
namespace {

// The number of rows in a chunk. It is small enough that every thread gets some chunks, and large
// enough that there are few partial sums.
constexpr int64_t kChunk = 32;

template <class Body>
void for_rows(int64_t rows, Body&& body) {
  at::parallel_for(0, rows, 8, std::forward<Body>(body));
}

// Sets sums[i] to the sum of column i over all rows, which is computed in chunks of rows that do
// not depend on the number of threads. For each chunk calls body(begin, end, sums of the chunk).
template <class T, class Body>
void with_sums(int64_t rows, int64_t columns, T* sums, Body&& body) {
  const int64_t chunks = (rows + kChunk - 1) / kChunk;
  std::vector<T> partial(static_cast<size_t>(chunks * columns));
  at::parallel_for(0, chunks, 1, [&](int64_t first, int64_t last) {
    for (int64_t chunk = first; chunk < last; ++chunk)
      body(chunk * kChunk, std::min((chunk + 1) * kChunk, rows), partial.data() + chunk * columns);
  });
  std::fill_n(sums, columns, T(0));
  for (int64_t chunk = 0; chunk < chunks; ++chunk)
    for (int64_t i = 0; i < columns; ++i) sums[i] += partial[static_cast<size_t>(chunk * columns + i)];
}

}  // namespace

#define GANNET_NN_ROWS(T, name)                                                                                                  \
  HWY_EXPORT(gelu_##name);                                                                                                       \
  HWY_EXPORT(gelu_backward_##name);                                                                                              \
  HWY_EXPORT(norm_##name);                                                                                                       \
  HWY_EXPORT(residual_##name);                                                                                                   \
  HWY_EXPORT(norm_backward_##name);                                                                                              \
  HWY_EXPORT(dropout_backward_##name);                                                                                           \
  template <>                                                                                                                    \
  void bias_gelu(MatrixSize size, T* inter, const T* bias, T* activated, bool is_tanh) {                                         \
    const GeluRows<T> of{size.columns, inter, bias, activated, is_tanh};                                                         \
    for_rows(size.rows, [&](int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(gelu_##name)(of, begin, end); });                 \
  }                                                                                                                              \
  template <>                                                                                                                    \
  void gelu_backward(MatrixSize size, const T* inter, T* gradient, T* bias_gradient, bool is_tanh) {                             \
    const GeluBackwardRows<T> of{size.columns, inter, gradient, is_tanh};                                                        \
    with_sums(size.rows, size.columns, bias_gradient,                                                                            \
              [&](int64_t begin, int64_t end, T* sums) { HWY_DYNAMIC_DISPATCH(gelu_backward_##name)(of, begin, end, sums); });   \
  }                                                                                                                              \
  template <>                                                                                                                    \
  void norm_forward(MatrixSize size, const T* input, const Norm<T>& norm, T* output, T* mean, T* rstd) {                         \
    const NormRows<T> of{size.columns, input, norm, output, mean, rstd};                                                         \
    for_rows(size.rows, [&](int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(norm_##name)(of, begin, end); });                 \
  }                                                                                                                              \
  template <>                                                                                                                    \
  void bias_dropout_residual(MatrixSize size, T* branch, const T* bias, const T* residual, const Dropout& dropout,               \
                             const Norm<T>* norm, T* output, T* mean, T* rstd) {                                                 \
    const ResidualRows<T> of{size.columns, branch, bias, residual, dropout, norm, output, mean, rstd};                           \
    for_rows(size.rows, [&](int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(residual_##name)(of, begin, end); });             \
  }                                                                                                                              \
  template <>                                                                                                                    \
  void norm_backward(MatrixSize size, const NormBackward<T>& of, const Norm<T>& norm, T* result) {                               \
    const NormBackwardRows<T> rows{size.columns, of, norm, result};                                                              \
    std::vector<T> both(static_cast<size_t>(2 * size.columns));                                                                  \
    with_sums(size.rows, 2 * size.columns, both.data(),                                                                          \
              [&](int64_t begin, int64_t end, T* sums) { HWY_DYNAMIC_DISPATCH(norm_backward_##name)(rows, begin, end, sums); }); \
    std::copy_n(both.data(), size.columns, of.gamma_gradient);                                                                   \
    std::copy_n(both.data() + size.columns, size.columns, of.beta_gradient);                                                     \
  }                                                                                                                              \
  template <>                                                                                                                    \
  void dropout_backward(MatrixSize size, const T* gradient, const Dropout& dropout, T* result, T* bias_gradient) {               \
    const DropoutRows<T> of{size.columns, gradient, dropout, result};                                                            \
    with_sums(size.rows, size.columns, bias_gradient, [&](int64_t begin, int64_t end, T* sums) {                                 \
      HWY_DYNAMIC_DISPATCH(dropout_backward_##name)(of, begin, end, sums);                                                       \
    });                                                                                                                          \
  }
GANNET_NN_ROWS(float, float)
GANNET_NN_ROWS(double, double)
#undef GANNET_NN_ROWS

}  // namespace gannet::nn
#endif
