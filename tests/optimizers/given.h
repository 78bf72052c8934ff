// A model whose gradients a test chooses, trained by an engine: for rules that a test writes down in tensor operations, over
// whole tensors of several shapes.
//
//   Given given({{5, 7}, {7}}, Dict{{"type", "Adafactor"}});
//   given.step();                        // with gradients that are a function of the step
//   given.values()[0]; given.gradients()[0];
#pragma once

#include <gannet/gannet.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

namespace gannet::test {

struct GivenImpl : torch::nn::Module {
  explicit GivenImpl(const std::vector<std::vector<int64_t>>& shapes) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(uint64_t{5});
    for (size_t i = 0; i < shapes.size(); ++i) {
      given.push_back(register_parameter("p" + std::to_string(i), torch::randn(shapes[i], generator)));
      gradients.emplace_back();
    }
  }
  // Its gradient by each parameter is `gradients`, exactly.
  at::Tensor forward(const at::Tensor&) {
    at::Tensor loss = torch::zeros({});
    for (size_t i = 0; i < given.size(); ++i) loss = loss + (given[i].to(at::kFloat) * gradients[i]).sum();
    return loss;
  }
  std::vector<at::Tensor> given, gradients;
};

class Given {
 public:
  explicit Given(const std::vector<std::vector<int64_t>>& shapes, const Dict& optimizer, const Dict& more = {})
      : module(std::make_shared<GivenImpl>(shapes)) {
    Dict config{{"train_micro_batch_size_per_gpu", 1},
                {"accelerator", Dict{{"type", "cpu"}}},
                {"optimizer", optimizer},
                {"gradient_clipping", 0.0}};
    for (const auto& [key, value] : more.entries()) config[key] = value;
    engine = initialize(module, {.config = config}).engine;
  }
  // For step number `count`, from 1: rows and columns of different sizes, some of them small.
  void set_gradients(int64_t count) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(100 + count));
    for (size_t i = 0; i < module->given.size(); ++i) {
      const auto shape = module->given[i].sizes();
      module->gradients[i] = torch::randn(shape, generator) * torch::rand(shape, generator).square() * (i + 1.0);
    }
  }
  void step() {
    set_gradients(++steps);
    engine->backward(engine->forward(at::Tensor()));
    engine->step();
  }
  std::vector<at::Tensor> values() const {
    std::vector<at::Tensor> all;
    for (const auto& p : module->given) all.push_back(p.detach().clone());
    return all;
  }

  std::shared_ptr<GivenImpl> module;
  std::shared_ptr<Engine<GivenImpl>> engine;
  int64_t steps = 0;
};

// The 2-norm of the difference of all tensors, over that of b.
inline double distance(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (a[i].to(at::kDouble) - b[i].to(at::kDouble)).square().sum().item<double>();
    size += b[i].to(at::kDouble).square().sum().item<double>();
  }
  return std::sqrt(difference / size);
}

}  // namespace gannet::test
