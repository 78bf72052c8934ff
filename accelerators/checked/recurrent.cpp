#include "recurrent.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

namespace gannet::accelerators::checked {
namespace {

using at::Tensor;

Tensor with_bias(const Tensor& gates, const std::optional<Tensor>& bias) {
  return bias && bias->defined() ? gates + *bias : gates;
}

// The cells are composed of differentiable operators
// (https://pytorch.org/docs/stable/generated/torch.nn.LSTM.html and GRU.html). The last result is
// the workspace that a fused kernel saves for backward; here it is empty.
std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cell,
                                             const std::optional<Tensor>& input_bias, const std::optional<Tensor>& hidden_bias) {
  const Tensor gates = with_bias(input_gates, input_bias) + with_bias(hidden_gates, hidden_bias);
  const auto part = gates.chunk(4, 1);  // gates: input, forget, cell, output
  const Tensor next = at::sigmoid(part[1]) * cell + at::sigmoid(part[0]) * at::tanh(part[2]);
  return {at::sigmoid(part[3]) * at::tanh(next), next, at::empty({0}, cell.options())};
}

std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hidden,
                                    const std::optional<Tensor>& input_bias, const std::optional<Tensor>& hidden_bias) {
  const auto of_input = with_bias(input_gates, input_bias).chunk(3, 1);  // gates: reset, update, new
  const auto of_hidden = with_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const Tensor reset = at::sigmoid(of_hidden[0] + of_input[0]), update = at::sigmoid(of_hidden[1] + of_input[1]);
  const Tensor fresh = at::tanh(of_input[2] + reset * of_hidden[2]);
  return {(hidden - fresh) * update + fresh, at::empty({0}, hidden.options())};
}

}  // namespace

void register_recurrent_cells() {
  for (const auto key :
       {c10::DispatchKey::AutogradPrivateUse1, c10::DispatchKey::PrivateUse1}) {  // the second is for inference mode
    auto* const aten = new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);  // never destroyed
    aten->impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
    aten->impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  }
}

}  // namespace gannet::accelerators::checked
