// Rules for operators that multiply and add. A result of `numel` elements, each the sum of `depth`
// products, needs numel * depth multiply-adds.
#include "base/format.h"
#include "profiler/rules.h"

namespace gannet::profiler {
namespace {

OperationCount products(int64_t macs) { return {2 * macs, macs}; }

// ---- Matrix products

// Multiply-adds: the number of result elements times the row length of the left matrix, which is
// the argument kLeft.
template <const char* kLeft>
OperationCount matmul(const Call& call, double) {
  return products(call.result().numel * call[kLeft].last());
}
constexpr char kSelf[] = "self", kMat1[] = "mat1", kBatch1[] = "batch1", kInput[] = "input", kMat[] = "mat";

// addbmm also sums the products over the batch.
OperationCount addbmm(const Call& call, double) { return products(call["batch1"].numel * call["batch2"].last()); }
OperationCount dot(const Call& call, double) { return products(call.first().numel); }

// ---- Convolutions. Padding counts as well.

// Each result element sums over one filter. In a transposed convolution, each input element is
// multiplied by one filter.
int64_t convolution_macs(const Call& call, const Shape& output) {
  const Shape& weight = call["weight"];
  if (weight.at(0) == 0) return 0;
  return (call.is("transposed") ? call["input"] : output).numel * (weight.numel / weight.at(0));
}
OperationCount convolution(const Call& call, double) { return products(convolution_macs(call, call.result())); }

// The gradients of input and weight, if requested, are one convolution each; the gradient of the
// bias is a sum.
OperationCount convolution_backward(const Call& call, double) {
  const Shape& output = call["grad_output"];
  const auto wanted = call.flags("output_mask");
  OperationCount counted;
  for (size_t i = 0; i < 2 && i < wanted.size(); ++i)
    if (wanted[i]) counted.macs += convolution_macs(call, output);
  counted.flops = 2 * counted.macs + (wanted.size() > 2 && wanted[2] ? output.numel : 0);
  return counted;
}

// ---- Attention: query [.., T, D], key [.., S, D], value [.., S, E]

int64_t scores(const Call& call) {
  return call["query"].last() == 0 ? 0 : call["query"].numel / call["query"].last() * call["key"].at(-2);
}

// Counts two products and a softmax.
OperationCount attention(const Call& call, double) {
  const int64_t numel = scores(call), macs = numel * (call["query"].last() + call["value"].last());
  return {2 * macs + numel, macs};
}

// Counts five products: the recomputed scores, which forward did not keep, and the gradients of
// value, probabilities, query and key.
OperationCount attention_backward(const Call& call, double) {
  const int64_t numel = scores(call), macs = numel * (3 * call["query"].last() + 2 * call["value"].last());
  return {2 * macs + 2 * numel, macs};
}

// ---- Recurrent layers in one operator: each step multiplies by each weight matrix, and needs
// about three more operations per gate.

OperationCount recurrent(const Call& call, const std::vector<Shape>& weights, double factor) {
  const Shape& input = call["input"];
  const int64_t steps = input.last() == 0 ? 0 : input.numel / input.last();
  int64_t macs = 0, gates = 0;
  for (size_t i = 0; i < weights.size(); ++i)
    if (weights[i].sizes.size() == 2) {
      macs += steps * weights[i].numel;
      gates += steps * weights[i].at(0);
    }
  macs = static_cast<int64_t>(static_cast<double>(macs) * factor);
  // 1.5 operations per row make about 3 per gate, since each gate has a row in both the input and
  // the hidden weights.
  return {2 * macs + static_cast<int64_t>(static_cast<double>(gates) * 1.5 * factor), macs};
}
OperationCount cudnn_rnn(const Call& call, double factor) { return recurrent(call, call.list("weight"), factor); }
OperationCount mkldnn_rnn(const Call& call, double factor) { return recurrent(call, {call["weight0"], call["weight1"]}, factor); }
OperationCount mkldnn_rnn_backward(const Call& call, double factor) {
  return recurrent(call, {call["weight1"], call["weight2"]}, factor);
}

OperationCount of_gates(const Call& call, double factor) {
  return {static_cast<int64_t>(static_cast<double>(call.first().numel) * factor), 0};
}

}  // namespace

void add_product_rules(Rules& rules) {
  for (const char* name : {"mm", "bmm", "_int_mm", "_scaled_mm"}) rules[name] = {"matmul", matmul<kSelf>};
  for (const char* name : {"addmm", "_addmm_activation"}) rules[name] = {"matmul", matmul<kMat1>};
  rules["baddbmm"] = {"matmul", matmul<kBatch1>};
  rules["addbmm"] = {"matmul", addbmm};
  rules["linear"] = {"matmul", matmul<kInput>};
  rules["mv"] = {"matmul", matmul<kSelf>};
  rules["addmv"] = {"matmul", matmul<kMat>};
  for (const char* name : {"dot", "vdot"}) rules[name] = {"matmul", dot};

  for (const char* name : {"convolution", "_convolution", "convolution_overrideable"}) rules[name] = {"convolution", convolution};
  for (const char* name : {"convolution_backward", "convolution_backward_overrideable"})
    rules[name] = {"convolution", convolution_backward};

  for (const char* name : {"_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
                           "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
                           "_scaled_dot_product_fused_attention_overrideable"}) {
    rules[name] = {"attention", attention};
    rules[formatted("{}_backward", name)] = {"attention", attention_backward};
  }

  rules["_cudnn_rnn"] = {"recurrent", cudnn_rnn};
  rules["_cudnn_rnn_backward"] = {"recurrent", cudnn_rnn, 2};
  rules["mkldnn_rnn_layer"] = {"recurrent", mkldnn_rnn};
  rules["mkldnn_rnn_layer_backward"] = {"recurrent", mkldnn_rnn_backward, 2};
  for (const char* name : {"_thnn_fused_lstm_cell", "_thnn_fused_gru_cell"}) {
    rules[name] = {"recurrent", of_gates, 3};
    rules[formatted("{}_backward", name)] = rules[formatted("{}_backward_impl", name)] = {"recurrent", of_gates, 6};
  }
}

}  // namespace gannet::profiler
