// Runs a tiny model from program start to the end of its first step.
#include <ATen/ops/ones.h>
#include <gannet/gannet.h>
#include <torch/nn/module.h>

struct Tiny : torch::nn::Module {
  Tiny() { weight = register_parameter("weight", at::ones({4})); }
  at::Tensor forward(const at::Tensor& x) { return (weight * x).square().sum(); }
  at::Tensor weight;
};

int main() {
  auto engine =
      gannet::initialize(std::make_shared<Tiny>(),
                         {.config = gannet::Dict{{"train_batch_size", 1}, {"optimizer", gannet::Dict{{"type", "AdamW"}}}}})
          .engine;
  engine->backward(engine->forward(at::ones({4})));
  return engine->step().applied ? 0 : 1;
}
