#include "params/reads_no_bytes.h"

#include <string>
#include <unordered_set>

namespace gannet::zero {

bool reads_no_bytes(const c10::OperatorHandle& op) {
  static const std::unordered_set<std::string> kNames = {"aten::t",
                                                         "aten::transpose",
                                                         "aten::permute",
                                                         "aten::view",
                                                         "aten::expand",
                                                         "aten::expand_as",
                                                         "aten::view_as",
                                                         "aten::slice",
                                                         "aten::select",
                                                         "aten::narrow",
                                                         "aten::unsqueeze",
                                                         "aten::squeeze",
                                                         "aten::split",
                                                         "aten::split_with_sizes",
                                                         "aten::chunk",
                                                         "aten::unbind",
                                                         "aten::as_strided",
                                                         "aten::detach",
                                                         "aten::detach_",
                                                         "aten::alias",
                                                         "aten::numpy_T",
                                                         "aten::mT",
                                                         "aten::swapaxes",
                                                         "aten::movedim",
                                                         "aten::diagonal",
                                                         "aten::unflatten",
                                                         "aten::size",
                                                         "aten::sym_size",
                                                         "aten::stride",
                                                         "aten::sym_stride",
                                                         "aten::numel",
                                                         "aten::dim",
                                                         "aten::is_floating_point",
                                                         "aten::is_complex",
                                                         "aten::is_same_size",
                                                         "aten::zeros_like",
                                                         "aten::ones_like",
                                                         "aten::empty_like",
                                                         "aten::full_like",
                                                         "aten::rand_like",
                                                         "aten::randn_like",
                                                         "aten::new_zeros",
                                                         "aten::new_empty",
                                                         "aten::new_ones",
                                                         "aten::new_full",
                                                         "aten::new_empty_strided",
                                                         "aten::requires_grad_",
                                                         "aten::retain_grad",
                                                         "aten::output_nr",
                                                         "aten::_version",
                                                         "aten::is_leaf",
                                                         "aten::set_data",
                                                         "aten::data",
                                                         "aten::result_type",
                                                         "aten::_has_compatible_shallow_copy_type"};
  return kNames.contains(op.operator_name().name);
}

}  // namespace gannet::zero
