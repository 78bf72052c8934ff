// A post-norm layer beside transformers' BertLayer with the same weights. make_bert_layer.py made the numbers.
#include <gannet/safetensors.h>
#include <gtest/gtest.h>

#include "nn/reference.h"

namespace gannet::test {
namespace {

TEST(TransformerLayer, IsBertsPostNormLayer) {
  auto tensors = load_safetensors(GANNET_SOURCE_DIR "/tests/nn/bert_layer.safetensors");
  for (const std::string gelu : {"erf", "tanh"}) {
    nn::TransformerLayerConfig config;
    config.hidden_size = 24, config.heads = 3, config.intermediate_size = 96;
    config.pre_layer_norm = false, config.gelu = gelu;
    nn::TransformerLayer layer(config);
    for (auto& parameter : layer->named_parameters()) {
      const torch::NoGradGuard no_grad;
      parameter.value().copy_(tensors.at(gelu + "." + parameter.key()));
    }
    const at::Tensor x = tensors.at(gelu + ".x").requires_grad_();
    const at::Tensor y = layer(x, tensors.at(gelu + ".mask"));
    y.backward(tensors.at(gelu + ".gradient"));
    EXPECT_LE((y - tensors.at(gelu + ".y")).abs().max().item<double>(), 1e-5);
    EXPECT_LE(distance(x.grad(), tensors.at(gelu + ".x.grad")), 1e-5);
    for (auto& parameter : layer->named_parameters())
      EXPECT_LE(distance(parameter.value().grad(), tensors.at(gelu + "." + parameter.key() + ".grad")), 1e-5) << parameter.key();
  }
}

}  // namespace
}  // namespace gannet::test
