// The LibTorch operators that a graph may call. A graph is data: it may only compute on tensors.
// Left out are operators that read or write files (from_file), exchange or resize the memory of
// tensors (set, resize), read without a bounds check (_unsafe_index), change what autograd records
// (requires_grad_, retain_grad), belong to other devices or layouts (quantized, sparse), or are the
// backward of another operator, which autograd calls by itself.
#include "allowed_operators.h"

#include <string>
#include <unordered_set>

namespace gannet::exported {
namespace {

constexpr std::string_view kNames =
    "__and__ __iand__ __ilshift__ __ior__ __irshift__ __ixor__ __lshift__ __or__ __rshift__ __xor__ _adaptive_avg_pool2d "
    "_adaptive_avg_pool3d _conj _conj_physical _convolution _embedding_bag _fused_rms_norm _grouped_mm _local_scalar_dense "
    "_log_softmax _native_batch_norm_legit _pack_padded_sequence _pad_circular _pad_packed_sequence _safe_softmax "
    "_shape_as_tensor _softmax _to_copy _trilinear _unique2 _unsafe_view _upsample_bicubic2d_aa _upsample_bilinear2d_aa "
    "_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d _weight_norm _weight_norm_interface abs "
    "absolute acos acosh adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d "
    "adaptive_max_pool3d add addbmm addcdiv addcmul addmm addmv addr adjoint affine_grid_generator alias all allclose "
    "alpha_dropout amax amin aminmax angle any arange arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin "
    "argsort argwhere as_strided as_strided_scatter asin asinh atan atan2 atanh atleast_1d atleast_2d atleast_3d avg_pool1d "
    "avg_pool2d avg_pool3d baddbmm bartlett_window batch_norm bernoulli bilinear binary_cross_entropy "
    "binary_cross_entropy_with_logits bincount binomial bitwise_and bitwise_left_shift bitwise_not bitwise_or "
    "bitwise_right_shift bitwise_xor blackman_window block_diag bmm broadcast_tensors broadcast_to bucketize cartesian_prod "
    "cat cauchy cdist ceil celu chain_matmul chalf channel_shuffle cholesky cholesky_inverse cholesky_solve chunk clamp "
    "clamp_max clamp_min clip clone col2im column_stack combinations complex concat concatenate conj conj_physical "
    "constant_pad_nd contiguous conv1d conv2d conv3d conv_depthwise3d conv_tbc conv_transpose1d conv_transpose2d "
    "conv_transpose3d convolution copy copysign corrcoef cos cosh cosine_embedding_loss cosine_similarity count_nonzero cov "
    "cross cross_entropy_loss ctc_loss cummax cummin cumprod cumsum cumulative_trapezoid deg2rad det detach diag diag_embed "
    "diagflat diagonal diagonal_scatter diff digamma dim dist div divide dot dropout dsplit dstack einsum elu embedding "
    "embedding_bag empty empty_like eq equal erf erfc erfinv exp exp2 expand expand_as expm1 exponential eye "
    "feature_alpha_dropout feature_dropout fft_fft fft_fft2 fft_fftfreq fft_fftn fft_fftshift fft_hfft fft_hfft2 fft_hfftn "
    "fft_ifft fft_ifft2 fft_ifftn fft_ifftshift fft_ihfft fft_ihfft2 fft_ihfftn fft_irfft fft_irfft2 fft_irfftn fft_rfft "
    "fft_rfft2 fft_rfftfreq fft_rfftn fill fill_diagonal fix flatten flip fliplr flipud float_power floor floor_divide fmax "
    "fmin fmod frac fractional_max_pool2d fractional_max_pool3d frexp frobenius_norm full full_like gather gcd ge gelu "
    "geometric geqrf ger glu glu_jvp gradient greater greater_equal grid_sampler grid_sampler_2d grid_sampler_3d group_norm "
    "gru gru_cell gt hamming_window hann_window hardshrink hardsigmoid hardswish hardtanh heaviside hinge_embedding_loss "
    "histc histogram histogramdd hsplit hstack huber_loss hypot i0 igamma igammac im2col imag index index_add index_copy "
    "index_fill index_put index_reduce index_select inner instance_norm inverse is_complex is_contiguous is_floating_point "
    "is_nonzero is_same_size is_signed isclose isfinite isin isinf isnan isneginf isposinf isreal istft item kaiser_window "
    "kl_div kron kthvalue l1_loss layer_norm lcm ldexp le leaky_relu lerp less less_equal lgamma lift_fresh lift_fresh_copy "
    "linalg__powsum linalg_cholesky linalg_cholesky_ex linalg_cond linalg_cross linalg_det linalg_diagonal linalg_eig "
    "linalg_eigh linalg_eigvals linalg_eigvalsh linalg_householder_product linalg_inv linalg_inv_ex linalg_ldl_factor "
    "linalg_ldl_factor_ex linalg_ldl_solve linalg_lstsq linalg_lu linalg_lu_factor linalg_lu_factor_ex linalg_lu_solve "
    "linalg_matmul linalg_matrix_exp linalg_matrix_norm linalg_matrix_power linalg_matrix_rank linalg_multi_dot linalg_norm "
    "linalg_pinv linalg_qr linalg_slogdet linalg_solve linalg_solve_ex linalg_solve_triangular linalg_svd linalg_svdvals "
    "linalg_tensorinv linalg_tensorsolve linalg_vander linalg_vecdot linalg_vector_norm linear linspace log log10 log1p log2 "
    "log_normal log_sigmoid log_sigmoid_forward log_softmax logaddexp logaddexp2 logcumsumexp logdet logical_and logical_not "
    "logical_or logical_xor logit logspace logsumexp lstm lstm_cell lt lu_solve lu_unpack mH mT margin_ranking_loss "
    "masked_fill masked_scatter masked_select matmul matrix_exp matrix_power max max_pool1d max_pool1d_with_indices "
    "max_pool2d max_pool2d_with_indices max_pool3d max_pool3d_with_indices max_unpool2d max_unpool3d maximum mean median "
    "meshgrid min minimum mish mm mode moveaxis movedim mse_loss msort mul multi_margin_loss multilabel_margin_loss "
    "multilabel_margin_loss_forward multinomial multiply mv mvlgamma nan_to_num nanmean nanmedian nanquantile nansum narrow "
    "native_batch_norm native_channel_shuffle native_dropout native_group_norm native_layer_norm native_norm ne neg negative "
    "new_empty new_full new_ones new_zeros nextafter nll_loss nll_loss2d nll_loss2d_forward nll_loss_forward nll_loss_nd "
    "nonzero nonzero_numpy norm norm_except_dim normal not_equal nuclear_norm numel one_hot ones ones_like orgqr ormqr outer "
    "pad pad_sequence pairwise_distance pdist permute pinverse pixel_shuffle pixel_unshuffle poisson poisson_nll_loss polar "
    "polygamma positive pow prelu prod qr quantile rad2deg rand rand_like randint randint_like randn randn_like random "
    "randperm ravel real reciprocal reflection_pad1d reflection_pad2d reflection_pad3d relu relu6 remainder renorm repeat "
    "repeat_interleave replication_pad1d replication_pad2d replication_pad3d reshape reshape_as resolve_conj resolve_neg "
    "result_type rms_norm rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell roll rot90 round row_stack rrelu rrelu_with_noise "
    "rsqrt rsub scalar_tensor scaled_dot_product_attention scatter scatter_add scatter_reduce searchsorted segment_reduce "
    "select select_scatter selu sgn sigmoid sign signbit silu sin sinc sinh slice slice_scatter slogdet slow_conv3d "
    "slow_conv3d_forward slow_conv_dilated2d slow_conv_dilated3d slow_conv_transpose2d slow_conv_transpose3d smooth_l1_loss "
    "soft_margin_loss softmax softplus softshrink sort sorted special_airy_ai special_bessel_j0 special_bessel_j1 "
    "special_bessel_y0 special_bessel_y1 special_chebyshev_polynomial_t special_chebyshev_polynomial_u "
    "special_chebyshev_polynomial_v special_chebyshev_polynomial_w special_digamma special_entr special_erf special_erfc "
    "special_erfcx special_erfinv special_exp2 special_expit special_expm1 special_gammainc special_gammaincc special_gammaln "
    "special_hermite_polynomial_h special_hermite_polynomial_he special_i0 special_i0e special_i1 special_i1e "
    "special_laguerre_polynomial_l special_legendre_polynomial_p special_log1p special_log_ndtr special_log_softmax "
    "special_logit special_logsumexp special_modified_bessel_i0 special_modified_bessel_i1 special_modified_bessel_k0 "
    "special_modified_bessel_k1 special_multigammaln special_ndtr special_ndtri special_polygamma special_psi special_round "
    "special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1 special_shifted_chebyshev_polynomial_t "
    "special_shifted_chebyshev_polynomial_u special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w "
    "special_sinc special_softmax special_spherical_bessel_j0 special_xlog1py special_xlogy special_zeta split "
    "split_with_sizes sqrt square squeeze stack std std_mean stft sub subtract sum sum_to_size svd swapaxes swapdims t take "
    "take_along_dim tan tanh tensor_split tensordot threshold tile to topk trace transpose trapezoid trapz triangular_solve "
    "tril tril_indices triplet_margin_loss triu triu_indices true_divide trunc type_as unbind unflatten unfold uniform "
    "unique_consecutive unique_dim unique_dim_consecutive unsafe_chunk unsafe_split unsafe_split_with_sizes unsqueeze "
    "upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d "
    "upsample_trilinear3d vander var var_mean vdot view view_as view_as_complex view_as_real vsplit vstack where xlogy zero "
    "zeros zeros_like ";

std::unordered_set<std::string_view> split(std::string_view text) {
  std::unordered_set<std::string_view> names;
  while (!text.empty()) {
    const size_t end = text.find(' ');
    names.insert(text.substr(0, end));
    text.remove_prefix(end + 1);  // a space terminates every name
  }
  return names;
}

}  // namespace

bool is_allowed(std::string_view name) {
  static const auto& names = *new std::unordered_set<std::string_view>(split(kNames));  // never destroyed
  if (names.contains(name)) return true;
  const bool is_in_place = name.size() > 1 && name.ends_with('_') && !name.ends_with("__");
  return is_in_place && names.contains(name.substr(0, name.size() - 1));
}

}  // namespace gannet::exported
