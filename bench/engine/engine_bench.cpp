// The engine's loop against the loop that a LibTorch user would write by hand with the same
// kernels: forward, backward, gradient norm, and the optimizer plugin's update of each parameter. A
// GPT of about 30M parameters in fp32. Also the same engine at ZeRO stage 3 on one rank, where
// every parameter stays gathered: the cost of intercepting each operator.
//
//   engine_bench [--tokens 512] [--rounds 9]
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros_like.h>
#include <gannet/gannet.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "common/gpt.h"
#include "common/rounds.h"
#include "grads/grad_norm.h"
#include "interfaces/optimizer.h"

namespace {

using gannet::bench::alternate;

// Forward, backward, clip and AdamW without an engine: only what is needed.
class HandWritten {
 public:
  explicit HandWritten(gpt2::Gpt model)
      : model_(model),
        registry_({}),
        plugin_(registry_.require(GANNET_KIND_OPTIMIZER, "AdamW", "cpu")),
        adam_(plugin_,
              gannet::plugin::parse_params(plugin_, gannet::Dict{{"lr", 1e-4}},
                                           [](const std::string&) { return std::string("bench"); }),
              host_) {
    for (auto& parameter : model_->parameters()) {
      parameters_.push_back(parameter);
      first_.push_back(at::zeros_like(parameter));
      second_.push_back(at::zeros_like(parameter));
    }
  }

  void step(const at::Tensor& tokens, const at::Tensor& targets) {
    model_->forward(tokens, targets).backward();
    at::NoGradGuard no_grad;
    double squares = 0;
    for (auto& parameter : parameters_)
      squares +=
          gannet::sum_of_squares(parameter.grad().const_data_ptr(), GANNET_FLOAT32, static_cast<uint64_t>(parameter.numel()), 0)
              .sum_of_squares;
    const double excess = std::sqrt(squares) + 1e-6;
    ++t_;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      void* states[] = {first_[i].data_ptr(), second_[i].data_ptr()};
      gannet_update_args args{};
      args.struct_size = sizeof(args);
      args.param_dtype = args.grad_dtype = GANNET_FLOAT32;
      args.numel = static_cast<uint64_t>(parameters_[i].numel());
      args.param = parameters_[i].data_ptr();
      args.grad = parameters_[i].grad().const_data_ptr();
      args.states = states;
      args.state_count = 2;
      args.grad_scale = excess > 1 ? 1 / excess : 1;
      args.step = t_;
      args.hyper = adam_.hyper_values().data();
      args.hyper_count = adam_.hyper_values().size();
      adam_.update(args);
      parameters_[i].mutable_grad().reset();
    }
  }

 private:
  gpt2::Gpt model_;
  gannet::Host host_;
  gannet::plugin::Registry registry_;
  const gannet::plugin::Plugin& plugin_;
  gannet::Optimizer adam_;
  std::vector<at::Tensor> parameters_, first_, second_;
  uint64_t t_ = 0;
};

int64_t option(int argc, char** argv, const char* name, int64_t fallback) {
  for (int i = 1; i + 1 < argc; ++i)
    if (!std::strcmp(argv[i], name)) return std::atoll(argv[i + 1]);
  return fallback;
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t tokens_per_step = option(argc, argv, "--tokens", 512), rounds = option(argc, argv, "--rounds", 9), length = 128;
  const gpt2::GptOptions size = gannet::bench::gpt_of_30m();
  at::manual_seed(1);
  gpt2::Gpt ours(size), staged(size), theirs(size);
  const auto engine_of = [&](gpt2::Gpt& model, const gannet::Dict& zero) {
    const gannet::Dict config{{"train_micro_batch_size_per_gpu", tokens_per_step / length},
                              {"gradient_clipping", 1.0},
                              {"zero_optimization", zero},
                              {"optimizer", gannet::Dict{{"type", "AdamW"}, {"params", gannet::Dict{{"lr", 1e-4}}}}}};
    return gannet::initialize(model, {.config = config}).engine;
  };
  const auto engine = engine_of(ours, {{"stage", 0}});
  const int64_t all = int64_t{1} << 40;
  const auto stage3 =
      engine_of(staged, {{"stage", 3}, {"stage3_param_persistence_threshold", all}, {"stage3_model_persistence_threshold", all}});
  HandWritten by_hand(theirs);
  int64_t parameters = 0;
  for (auto& parameter : ours->parameters()) parameters += parameter.numel();
  const at::Tensor tokens = at::randint(size.vocabulary, {tokens_per_step / length, length}, at::kLong);
  const at::Tensor targets = at::randint(size.vocabulary, {tokens_per_step / length, length}, at::kLong);
  const auto times = alternate({{"engine",
                                 [&] {
                                   engine->backward(engine->forward(tokens, targets));
                                   engine->step();
                                 }},
                                {"stage3",
                                 [&] {
                                   stage3->backward(stage3->forward(tokens, targets));
                                   stage3->step();
                                 }},
                                {"by_hand", [&] { by_hand.step(tokens, targets); }}},
                               static_cast<int>(rounds));
  gannet::bench::print_figure("engine_loop", times, "engine", "by_hand",
                              {{"parameters", double(parameters)}, {"tokens", double(tokens_per_step)}, {"bar", 1.01}});
  gannet::bench::print_figure("stage_3_all_persistent", times, "stage3", "engine",
                              {{"parameters", double(parameters)}, {"tokens", double(tokens_per_step)}, {"bar", 1.03}});
}
