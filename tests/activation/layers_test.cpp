// Layers of any signature behind one list, run one after another. Without an engine nothing is recomputed.
#include <gannet/error.h>
#include <gannet/layers.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "activation/here.h"

namespace gannet::test {
namespace {

using at::Tensor;
using testing::HasSubstr;

template <class Call, class Matcher>
void expect_error(ErrorCode code, const Call& call, const Matcher& message) {
  try {
    call();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    EXPECT_THAT(error.message(), message);
  }
}

struct MaskedImpl : torch::nn::Module {
  MaskedImpl() { linear = register_module("linear", torch::nn::Linear(4, 4)); }
  std::tuple<Tensor, Tensor> forward(const Tensor& x, Tensor mask) { return {linear(x) * mask, mask}; }
  Tensor overloaded(Tensor x, int64_t times) { return x * times; }
  Tensor one(Tensor x) const { return x + 1; }
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(Masked);

struct OfTupleImpl : torch::nn::Module {
  Tensor forward(std::tuple<Tensor, Tensor> both) { return std::get<0>(both) + std::get<1>(both); }
};
TORCH_MODULE(OfTuple);

static_assert(detail::Wired<Tensor> && detail::Wired<std::vector<Tensor>> && detail::Wired<std::optional<Tensor>>);
static_assert(detail::Wired<std::tuple<Tensor, std::pair<Tensor, std::array<Tensor, 2>>, Wire>>);
static_assert(!detail::Wired<int64_t> && !detail::Wired<std::string> && !detail::Wired<std::tuple<Tensor, int64_t>>);
static_assert(!detail::Wired<std::tuple<Wire, Tensor>>, "nobody could tell where the vector ends");

TEST(Layers, OfAnySignatureMakeOneList) {
  torch::manual_seed(0);
  torch::nn::Embedding words(10, 4);
  Masked masked;
  const std::vector<Layer> list{
      layer_of("words", words),
      function("mask", [](const Tensor& x) { return std::make_pair(x, torch::ones({1})); }),
      layer_of("a", masked),
      layer_of("a again", masked),
      layer_of("both", OfTuple()),
      function("parts", [](Tensor x) { return x.unbind(0); }),
      function("sum", [](const std::vector<Tensor>& parts) { return torch::stack(parts).sum(0); }),
      function("head", {words.ptr()}, [words](Tensor x) { return torch::matmul(x, words->weight.t()); }),
  };
  const Tensor ids = torch::randint(10, {2, 3});
  const Tensor mask = torch::ones({1});
  const Tensor x = std::get<0>(masked->forward(std::get<0>(masked->forward(words(ids), mask)), mask)) + mask;
  const Tensor expected = torch::matmul(x[0] + x[1], words->weight.t());
  EXPECT_TRUE(at::allclose(run_layers(list, ids), expected, 0, 1e-6));
  EXPECT_EQ(list[2].module(), list[3].module()) << "a module may be there twice";
  EXPECT_EQ(list[1].module(), nullptr);
  EXPECT_EQ(list[7].modules().size(), 1);
}

TEST(Layers, MayLeaveOutDefaultArguments) {
  torch::manual_seed(0);
  torch::nn::TransformerEncoderLayer encoder(torch::nn::TransformerEncoderLayerOptions(16, 2).dropout(0));
  const Layer layer = layer_of("encoder", encoder);
  EXPECT_EQ(layer.takes().to_string(), "1, 2 or 3 tensors");
  const Tensor x = torch::randn({3, 2, 16}), mask = torch::zeros({3, 3});
  EXPECT_TRUE(at::equal(layer({x})[0], encoder(x)));
  EXPECT_TRUE(at::equal(run_layers({layer}, x, mask), encoder(x, mask)));
  EXPECT_TRUE(at::equal(layer({x, Tensor(), Tensor()})[0], encoder(x))) << "an undefined tensor is what LibTorch's default is";
}

TEST(Layers, AreCalledByOtherFunctionsToo) {
  Masked masked;
  const Tensor x = torch::ones({2});
  EXPECT_TRUE(at::equal(run_layers({layer_of("one", masked, &MaskedImpl::one)}, x), x + 1));
  EXPECT_TRUE(at::equal(
      run_layers({layer_of("times", masked, [](MaskedImpl& module, Tensor x) { return module.overloaded(x, 3); })}, x), x * 3));
  EXPECT_TRUE(at::equal(run_layers({function("tanh", &torch::tanh)}, x), torch::tanh(x)));
  const auto filled = function("filled", [](Tensor x, std::optional<Tensor> bias) { return bias ? x + *bias : x; });
  EXPECT_TRUE(at::equal(run_layers({filled}, x, std::optional<Tensor>()), x));
  EXPECT_TRUE(at::equal(run_layers({filled}, x, x), x + x));
  const auto [a, b] = run_layers<std::tuple<Tensor, Tensor>>({function("two", [](Tensor x) { return std::array{x, x + 1}; })}, x);
  EXPECT_TRUE(at::equal(a + 1, b));
}

TEST(Layers, ASequentialGivesItself) {
  torch::manual_seed(0);
  torch::nn::Sequential body(torch::nn::Linear(8, 16), torch::nn::ReLU(), torch::nn::Functional(torch::tanh));
  body->push_back("last", torch::nn::Linear(16, 4));
  const auto list = layers_of(body);
  std::vector<std::string> names;
  for (const Layer& layer : list) names.push_back(layer.name());
  EXPECT_THAT(names, testing::ElementsAre("0", "1", "2", "last"));
  EXPECT_EQ(layers_of(body, "body")[3].name(), "body.last");
  const Tensor x = torch::randn({2, 8});
  EXPECT_TRUE(at::equal(run_layers(list, x), body->forward(x)));

  // Layers that return a tuple pass it to the next.
  torch::nn::Sequential pairs{Masked(), OfTuple()};
  const Tensor y = torch::randn({2, 4}), mask = torch::ones({4});
  EXPECT_TRUE(at::equal(run_layers(layers_of(pairs), y, mask), pairs->forward(y, mask)));
}

TEST(Layers, SayWhoTakesAndGivesHowMany) {
  Masked masked;
  const Tensor x = torch::ones({2, 4});
  expect_error(
      ErrorCode::kArgument, [&] { run_layers({layer_of("a", masked), layer_of("b", torch::nn::Linear(4, 4))}, x, x); },
      HasSubstr("layer 'b' takes 1 tensor, layer 'a' before it gave 2"));
  expect_error(
      ErrorCode::kArgument, [&] { run_layers({layer_of("a", masked)}, x); },
      HasSubstr("layer 'a' takes 2 tensors, the call of run_layers gave 1"));
  expect_error(
      ErrorCode::kArgument, [&] { run_layers({layer_of("a", masked)}, x, x); },
      HasSubstr("the last layer 'a' gave 2 tensors, and run_layers is to return 1 tensor"));
  expect_error(ErrorCode::kArgument, [&] { layer_of("a", masked)({x}); }, HasSubstr("layer 'a' takes 2 tensors"));
  const auto open = function("open", [](Tensor x, const std::vector<Tensor>& rest) { return x + rest.size(); });
  EXPECT_TRUE(at::equal(run_layers({open}, x, x, x), x + 2));
  expect_error(
      ErrorCode::kArgument, [&] { run_layers({open}, std::vector<Tensor>()); },
      HasSubstr("takes 1 or more tensors, the call of run_layers gave 0"));
}

struct ShapeImpl : torch::nn::Module {
  std::vector<int64_t> forward(Tensor x) { return x.sizes().vec(); }
};
TORCH_MODULE(Shape);

TEST(Layers, RefuseValuesThatAreNoTensorsByTheirType) {
  torch::nn::Sequential body{torch::nn::Linear(4, 4), Shape()};
  expect_error(
      ErrorCode::kUnsupported, [&] { run_layers(layers_of(body), torch::ones({2, 4})); },
      HasSubstr("layer '1' returned a std::vector<long"));
}

TEST(Layers, WithoutAnEngineAreJustCalled) {
  torch::nn::Sequential body(torch::nn::Linear(4, 4), torch::nn::Tanh());
  const uint64_t before = activation::region_counts().everywhere;
  run_layers(layers_of(body), torch::randn({2, 4})).sum().backward();
  EXPECT_EQ(activation::region_counts().everywhere, before);
  EXPECT_TRUE(at::equal(run_layers({}, torch::ones({2})), torch::ones({2})));
}

}  // namespace
}  // namespace gannet::test
