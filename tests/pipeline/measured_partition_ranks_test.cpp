// Layers that are divided by their measured time and memory.
#include <gannet/lazy.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "pipeline/run.h"

namespace {

using namespace gannet::test;
using gannet::Error;
using ranks::expect;
using ranks::expect_all_succeed;
using ranks::run_ranks;
namespace pipe = gannet::pipe;

at::Tensor slow(torch::nn::LinearImpl& module, const at::Tensor& x) {
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  return module.forward(x);
}

// Keeps 1 MiB for its backward.
at::Tensor wide(const at::Tensor& x) { return x * (x.sum() * torch::ones({1 << 18})).sigmoid().mean(); }

struct Divided {
  explicit Divided(const std::string& method, const std::optional<at::Tensor>& inputs = torch::randn({3, 4})) {
    torch::manual_seed(5);
    std::vector<gannet::Layer> layers{gannet::layer_of("slow", lazy, slow), gannet::layer_of("norm", norm)};
    for (const char* const name : {"h2", "h3", "h4", "h5"}) layers.push_back(gannet::layer<torch::nn::Linear>(name, 4, 4));
    layers.push_back(gannet::function("wide", wide));
    layers.push_back(gannet::layer<torch::nn::Linear>("out", 4, 4));
    pipe::Options options{.num_stages = 2,
                          .loss_fn = [](const at::Tensor& x, const at::Tensor& y) { return (x - y).square().mean(); },
                          .partition_method = method};
    if (inputs) options.sample = pipe::MicroBatch{{*inputs}, {torch::ones({3, 4})}};
    net = pipe::Module(layers, options);
    engine = gannet::initialize(net, {.config = pipe_config("1")}).engine;
  }
  gannet::Lazy<torch::nn::Linear> lazy{4, 4};
  torch::nn::BatchNorm1d norm{4};
  pipe::Module net{nullptr};
  std::shared_ptr<gannet::PipelineEngine> engine;
};

RANK_BODY(divides_by_measure) {
  const bool is_first = gannet::init_distributed()->rank() == 0;
  const Divided uniform("uniform");
  const at::Tensor drawn = torch::rand({4});
  for (const auto& [method, expected] :
       {std::pair("time", std::vector<size_t>{0, 1, 8}), std::pair("memory", std::vector<size_t>{0, 6, 8})}) {
    const Divided divided(method);
    expect(divided.net->bounds() == expected, method);
    expect(at::equal(torch::rand({4}), drawn), "measuring draws none of the program's random numbers");
    expect(divided.lazy.is_built() == is_first, "a stage builds its own layers alone");
    expect(divided.norm->num_batches_tracked.numel() == 0 || divided.norm->num_batches_tracked.item<int64_t>() == 0,
           "measuring changes no buffer");
    for (const auto& parameter : divided.net->named_parameters())
      expect(!parameter.value().grad().defined(), "measuring leaves no gradients");
    divided.engine->train_batch([] { return pipe::MicroBatch{{torch::ones({3, 4})}, {torch::ones({3, 4})}}; });
  }
}
TEST(MeasuredPartition, FollowsTheLayersTimesAndTheBytesThatTheyKeep) { expect_all_succeed(run_ranks("divides_by_measure", 2)); }

RANK_BODY(refuses_to_measure) {
  for (const auto& [inputs, expected] :
       {std::pair(std::optional<at::Tensor>(), "give pipe::Options a `sample`"),
        std::pair(std::optional(torch::ones({3, 4}, torch::kLong)), "layer 'slow', measured with pipe::Options::sample: "),
        std::pair(std::optional(torch::ones({0, 4})), "pipe::Options::sample has an input without elements")})
    try {
      const Divided divided("time", inputs);
      expect(false, "nothing was refused");
    } catch (const Error& error) {
      expect(std::string(error.what()).find(expected) != std::string::npos, error.what());
    }
}
TEST(MeasuredPartition, NeedsASampleThatItsLayersTake) { expect_all_succeed(run_ranks("refuses_to_measure", 2)); }

}  // namespace
