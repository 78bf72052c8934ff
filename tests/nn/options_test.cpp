// The layer's config, its first values, and what it refuses.
#include <gannet/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "nn/reference.h"

namespace gannet::test {
namespace {

using nn::TransformerLayer;
using nn::TransformerLayerConfig;
using ::testing::HasSubstr;

std::string error_text(const std::function<void()>& f, ErrorCode code) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "there was no error";
  return "";
}

TransformerLayerConfig small() {
  TransformerLayerConfig config;
  config.hidden_size = 24, config.heads = 3;
  return config;
}

TEST(TransformerLayerConfig, HasDeepSpeedsKeysAndDefaults) {
  const auto config = TransformerLayerConfig::from_dict(
      {{"batch_size", 8}, {"hidden_size", 24}, {"heads", 3}, {"attn_dropout_ratio", 0.1}, {"fp16", false}, {"seed", 42}});
  EXPECT_EQ(config.intermediate(), 96);
  EXPECT_EQ(config.attn_dropout_ratio, 0.1);
  EXPECT_EQ(config.hidden_dropout_ratio, -1);
  EXPECT_EQ(config.seed, 42);
  EXPECT_EQ(config.layer_norm_eps, 1e-12);
  EXPECT_TRUE(config.pre_layer_norm && config.adjust_init_range && config.training);
}

TEST(TransformerLayerConfig, NamesTheKeyThatIsWrong) {
  const auto refused = [](Dict entries) {
    Dict dictionary{{"hidden_size", 24}, {"heads", 3}};
    for (auto& [key, value] : entries.entries()) dictionary[key] = value;
    return error_text([&] { TransformerLayerConfig::from_dict(dictionary); }, ErrorCode::kConfig);
  };
  EXPECT_THAT(refused({{"hiden_size", 24}}), HasSubstr("unknown key 'hiden_size'; did you mean 'hidden_size'?"));
  EXPECT_THAT(refused({{"heads", 5}}), HasSubstr("heads is 5, which does not divide hidden_size 24"));
  EXPECT_THAT(refused({{"heads", "3"}}), HasSubstr("heads is \"3\" (a string)"));
  EXPECT_THAT(refused({{"hidden_size", 0}}), HasSubstr("hidden_size is 0"));
  EXPECT_THAT(refused({{"attn_dropout_ratio", 1}}), HasSubstr("attn_dropout_ratio is 1"));
  EXPECT_THAT(refused({{"hidden_dropout_ratio", -0.5}}), HasSubstr("hidden_dropout_ratio is -0.5"));
  EXPECT_THAT(refused({{"local_rank", 0}}), HasSubstr("num_hidden_layers is -1"));
  EXPECT_THAT(refused({{"gelu", "relu"}}), HasSubstr("gelu is 'relu'"));
  EXPECT_THAT(refused({{"layer_norm_eps", -1}}), HasSubstr("layer_norm_eps is -1"));
  EXPECT_THAT(refused({{"intermediate_size", 0}}), HasSubstr("intermediate_size is 0"));
}

TEST(TransformerLayerConfig, ReadsFilesInUtf8AndUtf16) {
  const std::string text = R"({"hidden_size": 24, "heads": 3, "pre_layer_norm": false})";
  const auto path = (std::filesystem::temp_directory_path() / ("layer" + std::to_string(::getpid()) + ".json")).string();
  const auto read = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    const auto config = TransformerLayerConfig::from_json_file(path);
    std::filesystem::remove(path);
    return config;
  };
  EXPECT_FALSE(read(text).pre_layer_norm);
  std::string little = "\xFF\xFE", big = "\xFE\xFF";
  for (const char letter : text) little += {letter, '\0'}, big += {'\0', letter};
  EXPECT_EQ(read(little).hidden_size, 24);
  EXPECT_EQ(read(big).heads, 3);
  EXPECT_THAT(error_text([] { TransformerLayerConfig::from_json_file("/no/such.json"); }, ErrorCode::kNotFound),
              HasSubstr("/no/such.json"));
}

TEST(TransformerLayer, BeginsAsDeepSpeedsDoes) {
  auto config = small();
  config.hidden_size = 240, config.initializer_range = 0.02, config.num_hidden_layers = 8, config.local_rank = 0;
  torch::manual_seed(1);
  const TransformerLayer adjusted(config);
  config.local_rank = 1;
  const TransformerLayer plain(config);
  const auto deviation = [](const at::Tensor& weight) { return weight.std().item<double>(); };
  EXPECT_NEAR(deviation(adjusted->attn_qkvw), 0.02, 0.0004);
  EXPECT_NEAR(deviation(adjusted->attn_ow), 0.005, 0.0001);
  EXPECT_NEAR(deviation(adjusted->output_w), 0.005, 0.0001);
  EXPECT_NEAR(deviation(plain->output_w), 0.02, 0.0004);
  EXPECT_TRUE(at::equal(plain->norm_w, torch::ones({240})) && at::equal(plain->attn_nw, torch::ones({240})));
  EXPECT_TRUE(at::equal(plain->inter_b, torch::zeros({960})));
}

TEST(TransformerLayer, CopiesInitialWeightsAndBiases) {
  std::vector<at::Tensor> weights, biases;
  for (int i = 0; i < 4; ++i) weights.push_back(torch::randn({24, 24}));
  weights.insert(weights.end(), {torch::randn({24}), torch::randn({96, 24}), torch::randn({24, 96}), torch::randn({24})});
  for (int i = 0; i < 8; ++i) biases.push_back(torch::randn({i == 5 ? 96 : 24}));
  const TransformerLayer layer(small(), weights, biases);
  EXPECT_TRUE(at::equal(layer->attn_qkvw, torch::cat({weights[0], weights[1], weights[2]})));
  EXPECT_TRUE(at::equal(layer->attn_qkvb, torch::cat({biases[0], biases[1], biases[2]})));
  EXPECT_TRUE(at::equal(layer->attn_ow, weights[3]) && at::equal(layer->norm_w, weights[7]));
  EXPECT_TRUE(at::equal(layer->inter_b, biases[5]) && at::equal(layer->norm_b, biases[7]));
  weights.pop_back();
  EXPECT_THAT(error_text([&] { TransformerLayer(small(), weights); }, ErrorCode::kArgument), HasSubstr("initial_weights has 7"));
  biases[1] = torch::randn({5});
  EXPECT_THAT(error_text([&] { TransformerLayer(small(), std::vector<at::Tensor>(), biases); }, ErrorCode::kArgument),
              HasSubstr("initial_biases[1] has the shape [5], and the layer's is [24]"));
}

TEST(TransformerLayer, TakesBooleansAsWhatMayBeLookedAt) {
  TransformerLayer layer(small());
  const at::Tensor x = torch::randn({2, 5, 24});
  at::Tensor allowed = torch::ones({2, 1, 1, 5}, torch::kBool);
  allowed[1][0][0][4] = false;
  const at::Tensor added = torch::zeros({2, 1, 1, 5}).masked_fill_(allowed.logical_not(), -10000);
  EXPECT_TRUE(at::equal(layer(x, allowed), layer(x, added)));
  EXPECT_FALSE(at::equal(layer(x, allowed), layer(x)));
}

TEST(TransformerLayer, RefusesMasksAndInputsThatDoNotFit) {
  TransformerLayer layer(small());
  const at::Tensor x = torch::randn({2, 5, 24});
  const auto refused = [&](const at::Tensor& mask, ErrorCode code = ErrorCode::kArgument) {
    return error_text([&] { layer(x, mask); }, code);
  };
  EXPECT_THAT(refused(torch::zeros({2, 5})), HasSubstr("attention_mask has the shape [2, 5]"));
  EXPECT_THAT(refused(torch::zeros({3, 1, 1, 5})), HasSubstr("does not expand to [2, 3, 5, 5]"));
  EXPECT_THAT(refused(torch::ones({2, 1, 1, 5}, torch::kLong)), HasSubstr("attention_mask is of Long"));
  EXPECT_THAT(refused(torch::zeros({2, 1, 1, 5}, torch::requires_grad()), ErrorCode::kUnsupported), HasSubstr("gradient"));
  EXPECT_THAT(error_text([&] { layer(torch::randn({2, 5, 23})); }, ErrorCode::kArgument),
              HasSubstr("hidden_states is Float [2, 5, 23]"));
  EXPECT_THAT(error_text([&] { layer(at::Tensor()); }, ErrorCode::kArgument), HasSubstr("undefined"));
}

TEST(TransformerLayer, RefusesASecondDerivative) {
  TransformerLayer layer(small());
  const at::Tensor x = torch::randn({2, 5, 24}, torch::requires_grad());
  const at::Tensor y = layer(x).sum();
  EXPECT_THAT(error_text([&] { torch::autograd::grad({y}, {x}, {}, true, /*create_graph=*/true); }, ErrorCode::kUnsupported),
              HasSubstr("no second derivative"));
}

TEST(TransformerLayer, RefusesToInvertWhatASmallGammaLost) {
  auto config = small();
  config.normalize_invertible = true;
  for (const bool is_pre_norm : {true, false}) {
    config.pre_layer_norm = is_pre_norm;
    TransformerLayer layer(config);
    const torch::NoGradGuard no_grad;
    const at::Tensor x = torch::randn({1, 3, 24});
    const auto forward = [&] {
      const torch::AutoGradMode grad(true);
      layer(x);
    };
    forward();
    layer->attn_nw[7] = 1e-3, layer->attn_nb[7] = 1;
    EXPECT_THAT(error_text(forward, ErrorCode::kUnsupported), HasSubstr("normalize_invertible: attn_nw[7] is 0.001"));
    layer->attn_nb[7] = 0;
    forward();
    layer->attn_nw[7] = 0;
    EXPECT_THAT(error_text(forward, ErrorCode::kUnsupported), HasSubstr("attn_nw[7] is 0"));
    layer(x);  // nothing is kept, so nothing is to be inverted
    layer->attn_nw[7] = 1, layer->norm_w[2] = 0;
    if (is_pre_norm)
      forward();  // the first norm's input is the layer's, which is there
    else
      EXPECT_THAT(error_text(forward, ErrorCode::kUnsupported), HasSubstr("norm_w[2]"));
  }
}

TEST(TransformerLayer, ReturnsATupleWhereOneIsWanted) {
  auto config = small();
  config.return_tuple = config.stochastic_mode = config.attn_dropout_checkpoint = true;
  config.training = false;
  TransformerLayer layer(config);
  EXPECT_FALSE(layer->is_training());
  const at::Tensor x = torch::randn({1, 3, 24});
  EXPECT_TRUE(at::equal(std::get<0>(layer->forward_tuple(x)), layer(x)));
  torch::nn::Sequential stack(layer, TransformerLayer(small()));  // the mask may be left out
  EXPECT_EQ(stack->forward(x).sizes(), x.sizes());
}

// LibTorch clones a module's children by assigning to those that reset() made.
struct HoldsALayer : torch::nn::Cloneable<HoldsALayer> {
  HoldsALayer() { reset(); }
  void reset() override { layer = register_module("layer", TransformerLayer(small())); }
  TransformerLayer layer{nullptr};
};

TEST(TransformerLayer, ClonesItsConfigValuesAndMode) {
  auto config = small();
  config.layer_id = 5, config.training = false;
  TransformerLayer layer(config);
  const at::Tensor x = torch::randn({1, 3, 24});
  const auto copy = std::dynamic_pointer_cast<nn::TransformerLayerImpl>(layer->clone());
  ASSERT_TRUE(copy);
  EXPECT_EQ(copy->layer_id(), 5);
  EXPECT_FALSE(copy->is_training());
  EXPECT_TRUE(at::equal(copy->forward(x), layer(x)));
  // Its parameters are its own.
  EXPECT_TRUE(copy->named_parameters()["attn_ow"].is_same(copy->attn_ow));
  copy->forward(x).sum().backward();
  EXPECT_TRUE(copy->attn_qkvw.grad().defined());
  EXPECT_FALSE(layer->attn_qkvw.grad().defined());
  {
    const torch::NoGradGuard no_grad;
    copy->attn_ow.zero_();
  }
  EXPECT_FALSE(at::equal(copy->forward(x), layer(x)));

  torch::nn::Sequential stack(layer, TransformerLayer(small()));
  EXPECT_TRUE(at::equal(std::dynamic_pointer_cast<torch::nn::SequentialImpl>(stack->clone())->forward(x), stack->forward(x)));
  HoldsALayer net;
  const auto copied = std::dynamic_pointer_cast<HoldsALayer>(net.clone());
  EXPECT_TRUE(at::equal(copied->layer(x), net.layer(x)));
  EXPECT_FALSE(copied->layer->attn_ow.is_alias_of(net.layer->attn_ow));
}

}  // namespace
}  // namespace gannet::test
