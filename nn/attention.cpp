#include "nn/attention.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm_cpu_dispatch.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace gannet::nn {
namespace {

// The size of a tile. Its scores (256 KiB of fp32) stay in the second-level cache. kKeys is a
// multiple of 64, because dropout words are computed for 64 columns at a time.
constexpr int64_t kQueries = 128, kKeys = 512;

template <class T>
struct AttentionShape {
  int64_t batch, heads, length, width, head_width;
  T scale;

  AttentionShape(const at::Tensor& qkv, int64_t batch, int64_t heads)
      : batch(batch),
        heads(heads),
        length(qkv.size(0) / batch),
        width(qkv.size(1) / 3),
        head_width(width / heads),
        scale(T(1) / std::sqrt(static_cast<T>(head_width))) {}
  // Offset of token `row` in a head's queries (part 0), keys (1) or values (2).
  int64_t place(int64_t item, int64_t part, int64_t row) const {
    return (item / heads * length + row) * 3 * width + part * width + item % heads * head_width;
  }
  int64_t context_place(int64_t item, int64_t row) const {
    return (item / heads * length + row) * width + item % heads * head_width;
  }
};

// Returns a matrix over memory that it does not own.
template <class T>
at::Tensor matrix(const T* data, int64_t rows, int64_t columns, int64_t stride) {
  return at::from_blob(const_cast<T*>(data), {rows, columns}, {stride, 1}, at::TensorOptions(c10::CppTypeToScalarType<T>::value));
}
template <class T>
at::Tensor transposed(const T* data, int64_t rows, int64_t columns, int64_t stride) {
  return at::from_blob(const_cast<T*>(data), {columns, rows}, {1, stride}, at::TensorOptions(c10::CppTypeToScalarType<T>::value));
}
// Computes into = left * right, or into += left * right if is_added. Calls LibTorch's kernels
// without its dispatcher, because these products are parts of one operation, on threads where no
// operator observer is registered.
void multiply(at::Tensor into, const at::Tensor& left, const at::Tensor& right, bool is_added = false) {
  if (is_added)
    at::cpu::addmm_(into, left, right, 1, 1);
  else
    at::cpu::mm_out(into, left, right);
}

template <class T>
ScoreTile<T> tile_of(const AttentionShape<T>& shape, const at::Tensor& mask, int64_t item, int64_t query, int64_t queries,
                     int64_t key, int64_t keys) {
  ScoreTile<T> tile{queries,
                    keys,
                    kKeys,
                    shape.scale,
                    nullptr,
                    0,
                    static_cast<uint64_t>(item * shape.length + query),
                    static_cast<uint64_t>(key)};
  if (mask.defined()) {
    tile.mask_stride = mask.stride(2);
    tile.mask = mask.const_data_ptr<T>() + item / shape.heads * mask.stride(0) + item % shape.heads * mask.stride(1) +
                query * mask.stride(2) + key;
  }
  return tile;
}

// Calls body(first, last) over the items. For a single item, LibTorch's products would use all
// threads, and the order of additions would depend on their number. With an empty second item, that
// case runs like all others.
template <class Body>
void over_items(int64_t count, const Body& body) {
  at::parallel_for(0, std::max<int64_t>(count, 2), 1, [&](int64_t first, int64_t last) { body(first, std::min(last, count)); });
}

template <class T>
void forward_tiles(const AttentionShape<T>& shape, const T* qkv, const at::Tensor& mask, const Dropout& dropout, T* context,
                   T* lse) {
  const int64_t tiles = (shape.length + kQueries - 1) / kQueries, from_word = 3 * shape.width;
  over_items(shape.batch * shape.heads * tiles, [&](int64_t first, int64_t last) {
    const at::AutoDispatchBelowADInplaceOrView no_graph;
    const at::Tensor memory = at::empty({kQueries * (kKeys + 3)}, at::TensorOptions(c10::CppTypeToScalarType<T>::value));
    T *scores = memory.mutable_data_ptr<T>(), *largest = scores + kQueries * kKeys, *sum = largest + kQueries,
      *rescale = sum + kQueries;
    for (int64_t work = first; work < last; ++work) {
      const int64_t item = work / tiles, query = work % tiles * kQueries, queries = std::min(kQueries, shape.length - query);
      std::fill_n(largest, queries, -std::numeric_limits<T>::infinity());
      std::fill_n(sum, queries, T(0));
      T* out = context + shape.context_place(item, query);
      for (int64_t key = 0; key < shape.length; key += kKeys) {
        const int64_t keys = std::min(kKeys, shape.length - key);
        multiply(matrix(scores, queries, keys, kKeys),
                 matrix(qkv + shape.place(item, 0, query), queries, shape.head_width, from_word),
                 transposed(qkv + shape.place(item, 1, key), keys, shape.head_width, from_word));
        softmax_tile(tile_of(shape, mask, item, query, queries, key, keys), dropout, scores, largest, sum, rescale);
        if (key > 0) scale_rows(queries, shape.head_width, shape.width, out, rescale);
        multiply(matrix(out, queries, shape.head_width, shape.width), matrix(scores, queries, keys, kKeys),
                 matrix(qkv + shape.place(item, 2, key), keys, shape.head_width, from_word), key > 0);
      }
      for (int64_t row = 0; row < queries; ++row) {
        // A token that may attend to nothing has output 0 and passes no gradient, since exp(x - inf)
        // is 0.
        const bool is_masked = sum[row] == 0;
        lse[item * shape.length + query + row] =
            is_masked ? std::numeric_limits<T>::infinity() : largest[row] + std::log(sum[row]);
        rescale[row] = is_masked ? T(0) : static_cast<T>(dropout.scale()) / sum[row];
      }
      scale_rows(queries, shape.head_width, shape.width, out, rescale);
    }
  });
}

// One item is a head of one sequence. The gradients of its keys and values are summed over its
// queries in order.
template <class T>
void backward_tiles(const AttentionShape<T>& shape, const T* gradient, const T* qkv, const at::Tensor& mask,
                    const Dropout& dropout, const T* context, const T* lse, T* result) {
  const int64_t from_word = 3 * shape.width, head = shape.head_width;
  over_items(shape.batch * shape.heads, [&](int64_t first, int64_t last) {
    const at::AutoDispatchBelowADInplaceOrView no_graph;
    const at::Tensor memory = at::empty({kQueries * (2 * kKeys + 1)}, at::TensorOptions(c10::CppTypeToScalarType<T>::value));
    T *scores = memory.mutable_data_ptr<T>(), *gradients = scores + kQueries * kKeys, *delta = gradients + kQueries * kKeys;
    for (int64_t item = first; item < last; ++item) {
      for (int64_t query = 0; query < shape.length; query += kQueries) {
        const int64_t queries = std::min(kQueries, shape.length - query);
        const T *out = context + shape.context_place(item, query), *out_gradient = gradient + shape.context_place(item, query);
        for (int64_t row = 0; row < queries; ++row) {
          T sum = 0;
          for (int64_t i = 0; i < head; ++i) sum += out[row * shape.width + i] * out_gradient[row * shape.width + i];
          delta[row] = sum;
        }
        const auto q = matrix(qkv + shape.place(item, 0, query), queries, head, from_word);
        const auto d_out = matrix(out_gradient, queries, head, shape.width);
        for (int64_t key = 0; key < shape.length; key += kKeys) {
          const int64_t keys = std::min(kKeys, shape.length - key);
          const auto k = matrix(qkv + shape.place(item, 1, key), keys, head, from_word);
          multiply(matrix(scores, queries, keys, kKeys), q, transposed(qkv + shape.place(item, 1, key), keys, head, from_word));
          multiply(matrix(gradients, queries, keys, kKeys), d_out,
                   transposed(qkv + shape.place(item, 2, key), keys, head, from_word));
          softmax_tile_backward(tile_of(shape, mask, item, query, queries, key, keys), dropout, scores, gradients,
                                lse + item * shape.length + query, delta);
          multiply(matrix(result + shape.place(item, 2, key), keys, head, from_word), transposed(scores, queries, keys, kKeys),
                   d_out, query > 0);
          multiply(matrix(result + shape.place(item, 1, key), keys, head, from_word), transposed(gradients, queries, keys, kKeys),
                   q, query > 0);
          multiply(matrix(result + shape.place(item, 0, query), queries, head, from_word),
                   matrix(gradients, queries, keys, kKeys), k, key > 0);
        }
      }
    }
  });
}

template <class T>
AttentionResult attention_as(const at::Tensor& qkv, const at::Tensor& mask, int64_t batch, int64_t heads,
                             const Dropout& dropout) {
  const AttentionShape<T> shape(qkv, batch, heads);
  AttentionResult result{at::empty({qkv.size(0), shape.width}, qkv.options()),
                         at::empty({batch, heads, shape.length}, qkv.options())};
  forward_tiles(shape, qkv.const_data_ptr<T>(), mask, dropout, result.context.mutable_data_ptr<T>(),
                result.lse.mutable_data_ptr<T>());
  return result;
}

}  // namespace

AttentionResult attention(const at::Tensor& qkv, const at::Tensor& mask, int64_t batch, int64_t heads, const Dropout& dropout) {
  if (qkv.scalar_type() == at::kDouble) return attention_as<double>(qkv, mask, batch, heads, dropout);
  return attention_as<float>(qkv, mask, batch, heads, dropout);
}

at::Tensor attention_backward(const at::Tensor& gradient, const at::Tensor& qkv, const AttentionResult& attended,
                              const at::Tensor& mask, int64_t heads, const Dropout& dropout) {
  at::Tensor result = at::empty(qkv.sizes(), qkv.options());
  const auto run = [&]<class T>(T) {
    backward_tiles<T>(AttentionShape<T>(qkv, attended.lse.size(0), heads), gradient.const_data_ptr<T>(), qkv.const_data_ptr<T>(),
                      mask, dropout, attended.context.const_data_ptr<T>(), attended.lse.const_data_ptr<T>(),
                      result.mutable_data_ptr<T>());
  };
  if (qkv.scalar_type() == at::kDouble)
    run(double());
  else
    run(float());
  return result;
}

}  // namespace gannet::nn
