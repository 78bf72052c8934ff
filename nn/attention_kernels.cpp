// Computes the softmax of attention, with its dropout, on a tile of scores, in forward and in
// backward.
#include <algorithm>
#include <limits>
#include <vector>

#include "nn/kernels.h"

// Highway requires this order of directives.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/attention_kernels.cpp"
#include <hwy/foreach_target.h>

#include "nn/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gannet::nn::HWY_NAMESPACE {

template <class T>
void softmax(const ScoreTile<T>& tile, const Dropout& dropout, T* all_scores, T* largest, T* sum, T* rescale) {
  std::vector<uint32_t> words(dropout.is_on() ? (tile.columns + 63) / 64 * 64 : 0);
  const uint32_t threshold = dropout.threshold();
  for (int64_t row = 0; row < tile.rows; ++row) {
    T* scores = all_scores + row * tile.stride;
    const T* mask = tile.mask ? tile.mask + row * tile.mask_stride : nullptr;
    Total<T> top(-std::numeric_limits<T>::infinity());
    along<T>(tile.columns, [&](auto d, int64_t i) HWY_ATTR {
      using V = Lanes<decltype(d)>;
      V x = load_lanes(d, scores + i);
      x = mask ? attention_logit(x, V(tile.scale), load_lanes(d, mask + i)) : x * V(tile.scale);
      store_lanes(d, x, scores + i);
      max_to(top, x);
    });
    const T before = largest[row], now = std::max(before, top.largest());
    // If everything so far is masked, the maximum is -inf. With a shift of 0 the exponentials are
    // then 0, as they should be.
    const T shift = now == -std::numeric_limits<T>::infinity() ? T(0) : now;
    if (dropout.is_on()) words_of_row(dropout, tile.first_row + row, tile.first_column, tile.columns, words.data());
    Total<T> added(0);
    along<T>(tile.columns, [&](auto d, int64_t i) HWY_ATTR {
      auto p = exp(load_lanes(d, scores + i) - Lanes<decltype(d)>(shift));
      add_to(added, p);
      if (dropout.is_on()) p = kept(d, p, words.data() + i, threshold);
      store_lanes(d, p, scores + i);
    });
    rescale[row] = std::exp(before - shift);
    largest[row] = now;
    sum[row] = sum[row] * rescale[row] + added.sum();
  }
}

template <class T>
void softmax_backward(const ScoreTile<T>& tile, const Dropout& dropout, T* all_scores, T* all_gradients, const T* lse,
                      const T* delta) {
  std::vector<uint32_t> words(dropout.is_on() ? (tile.columns + 63) / 64 * 64 : 0);
  const uint32_t threshold = dropout.threshold();
  const T keep_scale = static_cast<T>(dropout.scale());
  for (int64_t row = 0; row < tile.rows; ++row) {
    T *scores = all_scores + row * tile.stride, *gradients = all_gradients + row * tile.stride;
    const T* mask = tile.mask ? tile.mask + row * tile.mask_stride : nullptr;
    if (dropout.is_on()) words_of_row(dropout, tile.first_row + row, tile.first_column, tile.columns, words.data());
    along<T>(tile.columns, [&](auto d, int64_t i) HWY_ATTR {
      using V = Lanes<decltype(d)>;
      V x = load_lanes(d, scores + i);
      x = mask ? attention_logit(x, V(tile.scale), load_lanes(d, mask + i)) : x * V(tile.scale);
      const V p = exp(x - V(lse[row]));
      V keep(keep_scale);
      if (dropout.is_on()) keep = kept(d, keep, words.data() + i, threshold);
      store_lanes(d, p * keep, scores + i);
      store_lanes(d, score_gradient(p, keep, load_lanes(d, gradients + i), V(delta[row]), V(tile.scale)), gradients + i);
    });
  }
}

template <class T>
void scale_all(int64_t rows, int64_t columns, int64_t stride, T* values, const T* factors) {
  for (int64_t row = 0; row < rows; ++row)
    along<T>(columns, [&](auto d, int64_t i) HWY_ATTR {
      T* at = values + row * stride + i;
      store_lanes(d, load_lanes(d, at) * Lanes<decltype(d)>(factors[row]), at);
    });
}

void softmax_float(const ScoreTile<float>& tile, const Dropout& dropout, float* scores, float* largest, float* sum,
                   float* rescale) {
  softmax(tile, dropout, scores, largest, sum, rescale);
}
void softmax_double(const ScoreTile<double>& tile, const Dropout& dropout, double* scores, double* largest, double* sum,
                    double* rescale) {
  softmax(tile, dropout, scores, largest, sum, rescale);
}
void softmax_backward_float(const ScoreTile<float>& tile, const Dropout& dropout, float* scores, float* gradients,
                            const float* lse, const float* delta) {
  softmax_backward(tile, dropout, scores, gradients, lse, delta);
}
void softmax_backward_double(const ScoreTile<double>& tile, const Dropout& dropout, double* scores, double* gradients,
                             const double* lse, const double* delta) {
  softmax_backward(tile, dropout, scores, gradients, lse, delta);
}
void scale_float(int64_t rows, int64_t columns, int64_t stride, float* values, const float* factors) {
  scale_all(rows, columns, stride, values, factors);
}
void scale_double(int64_t rows, int64_t columns, int64_t stride, double* values, const double* factors) {
  scale_all(rows, columns, stride, values, factors);
}
void words_for(const Dropout& dropout, uint64_t row, uint64_t first_column, int64_t count, uint32_t* out) {
  words_of_row(dropout, row, first_column, count, out);
}

}  // namespace gannet::nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gannet::nn {

HWY_EXPORT(words_for);
void dropout_words(const Dropout& dropout, uint64_t row, uint64_t first_column, int64_t count, uint32_t* out) {
  HWY_DYNAMIC_DISPATCH(words_for)(dropout, row, first_column, count, out);
}

#define GANNET_NN_TILES(T)                                                                                            \
  HWY_EXPORT(softmax_##T);                                                                                            \
  HWY_EXPORT(softmax_backward_##T);                                                                                   \
  HWY_EXPORT(scale_##T);                                                                                              \
  template <>                                                                                                         \
  void softmax_tile(const ScoreTile<T>& tile, const Dropout& dropout, T* scores, T* largest, T* sum, T* rescale) {    \
    HWY_DYNAMIC_DISPATCH(softmax_##T)(tile, dropout, scores, largest, sum, rescale);                                  \
  }                                                                                                                   \
  template <>                                                                                                         \
  void softmax_tile_backward(const ScoreTile<T>& tile, const Dropout& dropout, T* scores, T* gradients, const T* lse, \
                             const T* delta) {                                                                        \
    HWY_DYNAMIC_DISPATCH(softmax_backward_##T)(tile, dropout, scores, gradients, lse, delta);                         \
  }                                                                                                                   \
  template <>                                                                                                         \
  void scale_rows(int64_t rows, int64_t columns, int64_t stride, T* values, const T* factors) {                       \
    HWY_DYNAMIC_DISPATCH(scale_##T)(rows, columns, stride, values, factors);                                          \
  }
GANNET_NN_TILES(float)
GANNET_NN_TILES(double)
#undef GANNET_NN_TILES

}  // namespace gannet::nn
#endif
