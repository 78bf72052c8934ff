// CPU kernels of the transformer layer, for everything between its matrix products. Rows are the
// tokens of a micro-batch, columns are their features. Results do not depend on the number of threads,
// because sums over rows use fixed chunks of rows. T is float or double.
#pragma once

#include <cstdint>

namespace gannet::nn {

// The places where the layer applies dropout. The value becomes part of the last word of
// PhiloxCounter.
enum class DropoutSite : uint32_t { kAttention = 0, kAttentionOutput = 1, kLayerOutput = 2 };

struct Dropout {
  double ratio = 0;     // 0: nothing is dropped
  uint64_t key = 0;     // derived from the seed and the micro-batch
  uint32_t stream = 0;  // derived from the layer and the site

  bool is_on() const { return ratio > 0; }
  double scale() const { return 1 / (1 - ratio); }
  uint32_t threshold() const {
    const double words = ratio * 4294967296.0;
    return words < 4294967295.0 ? static_cast<uint32_t>(words) : 4294967295u;
  }
};

struct MatrixSize {
  int64_t rows, columns;
};

/// inter += bias unless it is null; activated = gelu(inter).
template <class T>
void bias_gelu(MatrixSize size, T* inter, const T* bias, T* activated, bool is_tanh);
/// gradient *= gelu'(inter); bias_gradient = the column sums of the result.
template <class T>
void gelu_backward(MatrixSize size, const T* inter, T* gradient, T* bias_gradient, bool is_tanh);

template <class T>
struct Norm {
  const T *gamma, *beta;  // [columns]
  double eps;
};
/// Computes layer norm. `mean` and `rstd` receive one value per row, and may be null.
template <class T>
void norm_forward(MatrixSize size, const T* input, const Norm<T>& norm, T* output, T* mean, T* rstd);

/// branch = residual + dropout(branch + bias); if norm is not null, output = norm(branch).
template <class T>
void bias_dropout_residual(MatrixSize size, T* branch, const T* bias, const T* residual, const Dropout& dropout,
                           const Norm<T>* norm, T* output, T* mean, T* rstd);

template <class T>
struct NormBackward {
  const T* gradient;  // the gradient of the norm's output
  const T* kept;      // the norm's input, or its output
  bool is_output;
  const T *mean, *rstd;               // [rows]
  const T* residual;                  // added to the result; may be null
  T *gamma_gradient, *beta_gradient;  // [columns]
};
/// Computes the gradient of the norm's input. `result` may alias `gradient`.
template <class T>
void norm_backward(MatrixSize size, const NormBackward<T>& of, const Norm<T>& norm, T* result);

/// result = the scaled gradient of the elements that dropout kept, and 0 for the others;
/// bias_gradient = the column sums of these values. Without dropout `result` may be null.
template <class T>
void dropout_backward(MatrixSize size, const T* gradient, const Dropout& dropout, T* result, T* bias_gradient);

// ---- attention tiles: `rows` queries by `columns` keys, with `stride` elements between rows

template <class T>
struct ScoreTile {
  int64_t rows, columns, stride;
  T scale;
  const T* mask;          // may be null
  int64_t mask_stride;    // between rows; 0 if all rows share one mask
  uint64_t first_row;     // index of the tile's first row, for dropout
  uint64_t first_column;  // index of the tile's first column, for dropout; a multiple of 64
};
/// Replaces scores with exponentials relative to the row's maximum so far. Dropout sets elements to
/// 0, but does not scale the others. `largest` and `sum` cover the tiles so far; `rescale` receives
/// the factor for outputs of earlier tiles.
template <class T>
void softmax_tile(const ScoreTile<T>& tile, const Dropout& dropout, T* scores, T* largest, T* sum, T* rescale);
/// Replaces scores with probabilities after dropout and its scale. Replaces `gradients`, the
/// gradients of these probabilities, with the gradients of the scores.
template <class T>
void softmax_tile_backward(const ScoreTile<T>& tile, const Dropout& dropout, T* scores, T* gradients, const T* lse,
                           const T* delta);
/// Multiplies each row by its factor.
template <class T>
void scale_rows(int64_t rows, int64_t columns, int64_t stride, T* values, const T* factors);

/// out[i] = the dropout word of element (row, first_column + i), for i below `count` rounded up to
/// a multiple of 64.
void dropout_words(const Dropout& dropout, uint64_t row, uint64_t first_column, int64_t count, uint32_t* out);

}  // namespace gannet::nn
