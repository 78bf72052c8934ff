// A model of tensor-parallel layers, its engine, and what tests of split parameters compare.
#pragma once

#include <gannet/gannet.h>
#include <torch/torch.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "comm/ranks.h"
#include "comm/raw_group.h"
#include "control/world.h"
#include "engine/models.h"
#include "tensor/dtype.h"
#include "zero/support.h"

namespace gannet::test {

// The sum over the ranks along the axis, in forward (kForward) or of the gradient in backward.
template <bool kForward>
struct Summed : torch::autograd::Function<Summed<kForward>> {
  static at::Tensor sum(const at::Tensor& values, ProcessGroup* group) {
    at::Tensor total = values.detach().clone().contiguous();
    if (group->size() == 1) return total;
    const gannet_dtype dtype = gannet::to_dtype(total.scalar_type());
    RawGroup{group->links().device()}.all_reduce(total.data_ptr(), static_cast<uint64_t>(total.numel()), dtype).wait();
    return total;
  }
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& values, int64_t group) {
    context->saved_data["group"] = group;
    return kForward ? sum(values, reinterpret_cast<ProcessGroup*>(group)) : values.view_as(values);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    auto* group = reinterpret_cast<ProcessGroup*>(context->saved_data["group"].toInt());
    return {kForward ? grads[0] : sum(grads[0], group), at::Tensor()};
  }
};

// A gated layer: the gate's and the other rows fused in one weight, whose rows the ranks share out, and a weight whose columns
// they share out; a vector along the split dimension; whole layers before and behind. Hidden sizes that ranks do not divide.
struct GatedImpl : torch::nn::Module {
  GatedImpl(ProcessGroup& group, int64_t hidden, int64_t pieces = 2) : group_(reinterpret_cast<int64_t>(&group)) {
    first = register_module("first", torch::nn::Linear(8, 12));
    fused = part("fused", gannet::split_evenly({2 * hidden, 12}, 0, group.rank(), group.size(), pieces));
    scale = part("scale", gannet::split_evenly({hidden}, 0, group.rank(), group.size()));
    down = part("down", gannet::split_evenly({4, hidden}, 1, group.rank(), group.size()));
    bias = register_parameter("bias", torch::zeros({4}));
  }
  // The rank's boxes of a tensor that is the same on every rank.
  at::Tensor part(const std::string& name, const TensorSplit& split) {
    const at::Tensor whole = torch::randn(split.shape) * 0.3;
    std::vector<at::Tensor> boxes;
    for (const Box& box : split.boxes) {
      at::Tensor one = whole;
      for (int64_t d = 0; d < whole.dim(); ++d) one = one.narrow(d, box.offsets[d], box.sizes[d]);
      boxes.push_back(one);
    }
    const at::Tensor parameter = register_parameter(name, torch::cat(boxes, split.dim).clone());
    gannet::declare_split(parameter, split);
    return parameter;
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) {
    const at::Tensor input = Summed<false>::apply(torch::tanh(first(x.to(bias.dtype()))), group_);
    const auto both = at::linear(input, fused).chunk(2, 1);
    const at::Tensor hidden = at::silu(both[0]) * both[1] * scale;
    const at::Tensor output = Summed<true>::apply(at::linear(hidden, down), group_) + bias;
    return torch::mse_loss(output.to(torch::kFloat), y.to(torch::kFloat));
  }
  torch::nn::Linear first{nullptr};
  at::Tensor fused, scale, down, bias;

 private:
  int64_t group_;  // an int for autograd's context; the test keeps the group
};

inline constexpr int64_t kHidden = 15;

struct Run {
  std::shared_ptr<ProcessGroup> world = gannet::init_distributed(), tensor;
  std::shared_ptr<GatedImpl> model;
  std::shared_ptr<gannet::Engine<GatedImpl>> engine;

  static uint32_t degree() {
    const std::string text = variable("TENSOR");
    return text.empty() ? 1 : static_cast<uint32_t>(std::stoul(text));
  }
  struct How {
    int64_t seed = 1;
    bool has_own_optimizer = false;    // of a class of the program's own
    bool has_torch_optimizer = false;  // torch::optim::Adam itself
    int64_t pieces = 2;                // that the fused weight is split by
    std::vector<uint32_t> order = {};  // the ranks on the mesh; none: 0, 1, 2 ...
  };
  explicit Run(Dict config, int64_t seed = 1) : Run(std::move(config), How{.seed = seed}) {}
  Run(Dict config, const How& how) {
    torch::set_num_threads(1);
    const auto at = [&](uint32_t place) { return how.order.empty() ? place : how.order[place]; };
    for (uint32_t first = 0; first < world->size(); first += degree()) {
      std::vector<uint32_t> members;
      for (uint32_t i = 0; i < degree(); ++i) members.push_back(at(first + i));
      if (auto mine = world->subset(members)) tensor = mine;
    }
    torch::manual_seed(how.seed);
    model = std::make_shared<GatedImpl>(*tensor, kHidden, how.pieces);
    if (degree() > 1 && how.order.empty())
      config["gannet"] =
          Dict{{"mesh", Dict{{"tensor", static_cast<int64_t>(degree())}}}, {"fingerprint_every", fingerprint_every()}};
    std::optional<MeshShape> mesh;
    if (!how.order.empty())
      mesh = MeshShape({{"data", static_cast<uint32_t>(world->size() / degree())}, {"tensor", degree()}}, how.order);
    std::shared_ptr<torch::optim::Optimizer> optimizer;
    struct Own : torch::optim::Adam {
      using Adam::Adam;
    };
    if (how.has_own_optimizer || how.has_torch_optimizer) config.erase("optimizer");
    if (how.has_own_optimizer) optimizer = std::make_shared<Own>(model->parameters(), torch::optim::AdamOptions(1e-2));
    if (how.has_torch_optimizer)
      optimizer = std::make_shared<torch::optim::Adam>(model->parameters(), torch::optim::AdamOptions(1e-2));
    engine = gannet::initialize(model, {.config = config, .optimizer = optimizer, .mesh = mesh}).engine;
  }
  static int64_t fingerprint_every() { return variable("FINGERPRINT").empty() ? 100 : std::stoll(variable("FINGERPRINT")); }
  void train(int64_t first, int64_t micro_batches) {
    for (int64_t i = first; i < first + micro_batches; ++i) {
      auto [x, y] = make_batch(i * engine->world_size() + engine->rank(), 4);
      const at::Tensor loss = engine->forward(x, y);
      engine->backward(loss);
      if (engine->step().boundary && world->rank() == 0)
        std::cout << "figure: " << loss.item<double>() << " " << *engine->get_global_grad_norm() << std::endl;
    }
  }
};

inline Dict split_config(int64_t stage, const std::string& tier = "") {
  Dict config = config_with({{"gradient_clipping", 0.5}, {"gradient_accumulation_steps", 2}});
  config["optimizer"] = Dict{{"type", "AdamW"}, {"params", Dict{{"lr", 1e-2}, {"eps", 1e-6}}}};
  Dict zero{{"stage", stage}, {"reduce_bucket_size", 300}, {"stage3_param_persistence_threshold", 40}};
  if (!tier.empty()) zero["offload_optimizer"] = Dict{{"device", tier}, {"nvme_path", variable("FOLDER")}};
  config["zero_optimization"] = zero;
  return config;
}

// With a moving average of the parameters.
inline Dict with_average(Dict config) {
  config["gannet"] = Dict{{"ema", Dict{{"decay", 0.9}}}};
  return config;
}
// Beside what the config has.
inline void add_own(Dict& config, const Dict& more) {
  Dict own = config.find("gannet") ? config.find("gannet")->as_dict() : Dict();
  for (const auto& [key, value] : more.entries()) own[key] = value;
  config["gannet"] = own;
}

inline std::vector<double> figures(const std::vector<ranks::Outcome>& outcomes) {
  std::vector<double> all;
  std::istringstream output(outcomes.at(0).output);
  for (std::string line; std::getline(output, line);) {
    if (line.rfind("figure: ", 0) != 0) continue;
    std::istringstream numbers(line.substr(8));
    for (double number; numbers >> number;) all.push_back(number);
  }
  return all;
}

}  // namespace gannet::test
