// Uses Gannet in a program that is not a trainer. The program has its own main, signal handlers and
// threads, and fits a double-precision field u(x) to a differential equation, u'(x) = cos(x) with
// u(0) = 0. The loss needs a second derivative.
#include <gannet/gannet.h>
#include <torch/torch.h>

#include <atomic>
#include <csignal>
#include <iostream>
#include <thread>

struct Field : torch::nn::Module {
  Field() {
    net = register_module("net", torch::nn::Sequential(torch::nn::Linear(1, 32), torch::nn::Tanh(), torch::nn::Linear(32, 1)));
  }
  at::Tensor forward(const at::Tensor& x, double scale, bool pinned) {
    return net->forward(x) * scale * (pinned ? x : torch::ones_like(x));
  }
  torch::nn::Sequential net{nullptr};
};

std::atomic<bool> stop{false};

int main() {
  std::signal(SIGINT, [](int) { stop = true; });
  auto field = std::make_shared<Field>();
  field->to(torch::kDouble);
  auto [engine, optimizer, loader, scheduler] = gannet::initialize(
      field, {.config = gannet::Dict{{"train_batch_size", 1},
                                     {"optimizer", gannet::Dict{{"type", "AdamW"}, {"params", gannet::Dict{{"lr", 5e-3}}}}}}});
  double residual = 0;
  std::thread trainer([&, &engine = engine] {
    for (int step = 0; step < 500 && !stop; ++step) {
      const at::Tensor x = torch::rand({64, 1}, torch::kDouble).requires_grad_(true);
      const at::Tensor du = torch::autograd::grad({engine->forward(x, 1.0, true).sum()}, {x}, {}, true, /*create_graph=*/true)[0];
      const at::Tensor loss = (du - torch::cos(x)).square().mean();
      engine->backward(loss, {.create_graph = true});
      engine->step();
      residual = loss.item<double>();
    }
  });
  trainer.join();
  std::cout << "residual " << residual << '\n';
  return residual < 1e-3 ? 0 : 1;
}
