// Rules for operators with a fixed number of operations per element, and for operators that compute
// nothing.
#include "base/format.h"
#include "profiler/rules.h"

namespace gannet::profiler {
namespace {

OperationCount times(int64_t numel, double factor) { return {static_cast<int64_t>(static_cast<double>(numel) * factor), 0}; }

OperationCount of_result(const Call& call, double factor) { return times(call.elements(), factor); }
OperationCount of_input(const Call& call, double factor) { return times(call.first().numel, factor); }

// An estimate, like DeepSpeed's. It counts one operation per element for each of mean, variance,
// difference and quotient and, with a weight, one for scale and shift together.
OperationCount normalization(const Call& call, double factor) {
  return times(call["input"].numel, factor * (call["weight"].is_given ? 5 : 4));
}
OperationCount batch_normalization(const Call& call, double factor) {
  const bool is_affine = call["weight"].is_given;
  const bool trains = call.is("training") || call.is("train");
  return times(call["input"].numel, factor * (trains ? (is_affine ? 5 : 4) : (is_affine ? 2 : 1)));
}

}  // namespace

void add_element_rules(Rules& rules) {
  for (const char* name : {"native_layer_norm", "native_group_norm", "_fused_rms_norm"}) {
    rules[name] = {"normalization", normalization};
    rules[formatted("{}_backward", name)] = {"normalization", normalization, 2};
  }
  for (const char* name : {"native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training",
                           "_batch_norm_with_update", "_batch_norm_no_update", "cudnn_batch_norm", "miopen_batch_norm"})
    rules[name] = {"normalization", batch_normalization};
  for (const char* name : {"native_batch_norm_backward", "batch_norm_backward"})
    rules[name] = {"normalization", batch_normalization, 2};
  for (const char* name : {"cudnn_batch_norm_backward", "miopen_batch_norm_backward"})
    rules[name] = {"normalization", normalization, 2};

  for (const char* name : {"relu",
                           "gelu",
                           "sigmoid",
                           "tanh",
                           "elu",
                           "leaky_relu",
                           "silu",
                           "mish",
                           "hardtanh",
                           "hardswish",
                           "hardsigmoid",
                           "softplus",
                           "threshold",
                           "softshrink",
                           "hardshrink",
                           "_prelu_kernel",
                           "rrelu_with_noise",
                           "log_sigmoid",
                           "log_sigmoid_forward",
                           "glu",
                           "celu",
                           "logit"}) {
    rules[name] = {"activation", of_input};
    rules[formatted("{}_backward", name)] = {"activation", of_input};
  }

  for (const char* name : {"_softmax", "_log_softmax", "_safe_softmax", "_softmax_backward_data", "_log_softmax_backward_data",
                           "_masked_softmax", "_masked_softmax_backward"})
    rules[name] = {"softmax", of_input};

  for (const char* name : {"avg_pool1d", "avg_pool2d", "avg_pool3d", "max_pool2d_with_indices", "max_pool3d_with_indices",
                           "mkldnn_max_pool2d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_max_pool2d",
                           "adaptive_max_pool3d", "fractional_max_pool2d", "fractional_max_pool3d"}) {
    rules[name] = {"pooling", of_input};
    rules[formatted("{}_backward", name)] = {"pooling", of_result};
  }
  for (const char* name : {"upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d",
                           "_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d",
                           "upsample_trilinear3d", "upsample_bicubic2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"}) {
    rules[name] = {"pooling", of_result};
    rules[formatted("{}_backward", name)] = {"pooling", of_input};
  }

  for (const char* name : {"sum", "nansum", "mean", "prod", "max", "min", "amax", "amin", "aminmax", "argmax", "argmin", "cumsum",
                           "cumprod", "logsumexp", "trace"})
    rules[name] = {"reduction", of_input};
  for (const char* name : {"norm", "linalg_vector_norm"}) rules[name] = {"reduction", of_input, 2};
  for (const char* name : {"var", "std", "var_mean", "std_mean"}) rules[name] = {"reduction", of_input, 3};

  rules["nll_loss_forward"] =
      rules["nll_loss2d_forward"] = {"loss", [](const Call& call, double factor) { return times(call["target"].numel, factor); }};
  rules["nll_loss_backward"] = rules["nll_loss2d_backward"] = {
      "loss", [](const Call& call, double factor) { return times(call["target"].numel, factor); }};
  for (const char* name : {"mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits",
                           "soft_margin_loss"}) {
    rules[name] = {"loss", of_input, 3};
    rules[formatted("{}_backward", name)] = {
        "loss", [](const Call& call, double factor) { return times(call["self"].numel, factor); }, 3};
  }

  for (const char* name :
       {"add",   "sub",   "rsub",      "mul",       "div",    "neg",     "reciprocal", "abs",     "pow",     "square",
        "sqrt",  "rsqrt", "exp",       "exp2",      "expm1",  "log",     "log2",       "log10",   "log1p",   "sin",
        "cos",   "tan",   "asin",      "acos",      "atan",   "atan2",   "sinh",       "cosh",    "asinh",   "acosh",
        "atanh", "sinc",  "erf",       "erfc",      "erfinv", "lgamma",  "digamma",    "maximum", "minimum", "fmax",
        "fmin",  "clamp", "clamp_min", "clamp_max", "hypot",  "xlogy",   "logaddexp",  "floor",   "ceil",    "round",
        "trunc", "frac",  "fmod",      "remainder", "dist",   "complex", "polar",      "angle",   "sgn",     "sign"})
    rules[name] = {"elementwise", of_result};
  for (const char* name : {"addr"}) rules[name] = {"elementwise", of_result, 2};
  for (const char* name : {"addcmul", "addcdiv", "lerp"}) rules[name] = {"elementwise", of_result, 3};
}

void add_movement_rules(Rules& rules) {
  for (const char* name :
       {// views
        "t", "transpose", "permute", "view", "_unsafe_view", "_reshape_alias", "reshape", "expand", "slice", "select", "narrow",
        "unsqueeze", "squeeze", "split", "split_with_sizes", "chunk", "unbind", "as_strided", "detach", "alias", "diagonal",
        "unfold", "lift_fresh", "view_as_real", "view_as_complex", "real", "imag", "conj", "_conj", "resolve_conj", "split_copy",
        "unsafe_split", "unsafe_chunk", "unsafe_split_with_sizes", "set_data", "requires_grad_", "retain_grad", "values",
        "_values", "indices", "_indices", "crow_indices",
        // copies, and gradients of views and of copies
        "copy", "to", "_to_copy", "clone", "contiguous", "cat", "stack", "repeat", "roll", "flip", "constant_pad_nd",
        "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "im2col", "col2im", "reflection_pad1d", "reflection_pad2d",
        "reflection_pad3d", "replication_pad1d", "replication_pad2d", "replication_pad3d", "reflection_pad1d_backward",
        "reflection_pad2d_backward", "reflection_pad3d_backward", "replication_pad1d_backward", "replication_pad2d_backward",
        "replication_pad3d_backward", "select_backward", "slice_backward", "diagonal_backward", "unfold_backward",
        "as_strided_scatter", "slice_scatter", "select_scatter", "value_selecting_reduction_backward", "resize", "_pin_memory",
        "_to_dense", "to_sparse", "_to_sparse", "coalesce", "_coalesce", "sparse_mask",
        "_sparse_coo_tensor_with_dims_and_tensors", "_sparse_coo_tensor_unsafe", "_coalesced",
        // look-ups
        "embedding", "embedding_dense_backward", "embedding_sparse_backward", "_embedding_bag", "_embedding_bag_forward_only",
        "_embedding_bag_dense_backward", "index_select", "index", "_unsafe_index", "index_put", "_unsafe_index_put",
        "_index_put_impl", "index_add", "index_copy", "index_fill", "gather", "scatter", "scatter_add", "take", "put",
        "masked_fill", "masked_scatter", "masked_select", "where", "tril", "triu", "nonzero", "one_hot", "repeat_interleave",
        "topk", "sort", "searchsorted", "bucketize", "nll_loss_nd",
        // new tensors and random numbers
        "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "zeros", "zeros_like", "new_zeros", "ones",
        "ones_like", "new_ones", "full", "full_like", "new_full", "arange", "linspace", "eye", "scalar_tensor", "fill", "zero",
        "_efficientzerotensor", "tril_indices", "triu_indices", "rand", "rand_like", "randn", "randn_like", "randint",
        "randint_like", "randperm", "bernoulli", "uniform", "normal", "exponential", "random", "multinomial", "native_dropout",
        "native_dropout_backward", "_fused_dropout",
        // comparisons, logic, scalar reads, tensor metadata
        "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "isin", "equal", "is_same_size", "all", "any",
        "logical_and", "logical_or", "logical_not", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_not", "bitwise_xor",
        "_local_scalar_dense", "item", "is_nonzero", "count_nonzero", "bincount", "_assert_async", "_version", "result_type",
        "is_pinned", "_nnz", "is_coalesced", "sparse_dim", "dense_dim", "_dimI", "_dimV", "record_stream",
        "_has_same_storage_numel", "_is_zerotensor", "is_set_to", "_use_cudnn_rnn_flatten_weight"})
    rules[name] = {"movement"};
}

const Rule* find_rule(const std::string& name) {
  static const Rules* const rules = [] {
    auto* all = new Rules;
    add_movement_rules(*all);
    add_element_rules(*all);
    add_product_rules(*all);
    return all;
  }();
  constexpr const char* kSpace = "aten::";
  if (name.rfind(kSpace, 0) != 0) return nullptr;
  std::string own = name.substr(std::char_traits<char>::length(kSpace));
  auto found = rules->find(own);
  if (found == rules->end() && own.size() > 1 && own.back() == '_') {  // an operator that works in place
    own.pop_back();
    found = rules->find(own);
  }
  return found == rules->end() ? nullptr : &found->second;
}

}  // namespace gannet::profiler
