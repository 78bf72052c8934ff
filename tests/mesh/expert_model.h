// A mixture of experts that ranks along the axis expert share out, its engine, and what its tests compare.
#pragma once

#include <iomanip>
#include <optional>

#include "mesh/split_model.h"

namespace gannet::test {

// Rows of all ranks of a group in forward, and the rank's own rows of the sum of their gradients in backward; kCollects false:
// the other way round, the sum of what ranks have computed of all rows, of which each takes its own. As an all-to-all does, each
// gives the loss's sums over the ranks' tokens.
template <bool kCollects>
struct Rows : torch::autograd::Function<Rows<kCollects>> {
  static at::Tensor collected(const at::Tensor& own, ProcessGroup* group) {
    at::Tensor all = torch::zeros({own.size(0) * group->size(), own.size(1)}, own.options());
    all.narrow(0, own.size(0) * group->rank(), own.size(0)).copy_(own);
    return Summed<true>::sum(all, group);
  }
  static at::Tensor own_of_sum(const at::Tensor& all, ProcessGroup* group) {
    const int64_t rows = all.size(0) / group->size();
    return Summed<true>::sum(all, group).narrow(0, rows * group->rank(), rows).clone();
  }
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& values, int64_t group) {
    context->saved_data["group"] = group;
    auto* ranks = reinterpret_cast<ProcessGroup*>(group);
    return kCollects ? collected(values.detach(), ranks) : own_of_sum(values.detach(), ranks);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    auto* ranks = reinterpret_cast<ProcessGroup*>(context->saved_data["group"].toInt());
    return {kCollects ? own_of_sum(grads[0], ranks) : collected(grads[0].contiguous(), ranks), at::Tensor()};
  }
};

inline constexpr int64_t kExperts = 4;
inline int64_t expert_count() { return variable("EXPERTS").empty() ? kExperts : std::stoll(variable("EXPERTS")); }

// Every token goes to all experts, weighted by a gate; a rank evaluates its own ones for the tokens of its neighbours. The
// experts' weights are fused: [experts, out, in].
struct MixtureImpl : torch::nn::Module {
  MixtureImpl(ProcessGroup& group, double divisor, bool trains_up = true) : group_(reinterpret_cast<int64_t>(&group)) {
    first = register_module("first", torch::nn::Linear(8, 12));
    gate = register_module("gate", torch::nn::Linear(12, expert_count()));
    const auto rank = group.rank(), ranks = group.size();
    first_expert_ = gannet::split_evenly({expert_count()}, 0, rank, ranks).boxes[0].offsets[0];
    up = expert("up", gannet::split_evenly({expert_count(), 10, 12}, 0, rank, ranks), divisor);
    down = expert("down", gannet::split_evenly({expert_count(), 4, 10}, 0, rank, ranks), divisor);
    up.set_requires_grad(trains_up);
    bias = register_parameter("bias", torch::zeros({4}));
  }
  at::Tensor expert(const std::string& name, const TensorSplit& split, double divisor) {
    const at::Tensor whole = torch::randn(split.shape) * 0.3;
    const at::Tensor mine = register_parameter(name, whole.narrow(0, split.boxes[0].offsets[0], split.boxes[0].sizes[0]).clone());
    gannet::declare_expert(mine, split, divisor);
    return mine;
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) {
    const at::Tensor hidden = torch::tanh(first(x.to(bias.dtype())));
    const at::Tensor tokens = Rows<true>::apply(torch::cat({hidden, torch::softmax(gate(hidden), 1)}, 1), group_);
    const at::Tensor inputs = tokens.narrow(1, 0, 12), weights = tokens.narrow(1, 12, expert_count());
    const int64_t mine = up.size(0);
    const at::Tensor outputs = torch::bmm(at::silu(torch::bmm(inputs.expand({mine, -1, -1}), up.transpose(1, 2))),
                                          down.transpose(1, 2));  // [mine, tokens, 4]
    const at::Tensor own_weights = weights.narrow(1, first_expert_, mine).t().unsqueeze(2);
    const at::Tensor output = Rows<false>::apply((outputs * own_weights).sum(0), group_) + bias;
    return torch::mse_loss(output.to(torch::kFloat), y.to(torch::kFloat));
  }
  torch::nn::Linear first{nullptr}, gate{nullptr};
  at::Tensor up, down, bias;

 private:
  int64_t group_;  // an int for autograd's context; the test keeps the group
  int64_t first_expert_ = 0;
};

struct MixtureRun {
  struct How {
    int64_t seed = 1;
    double divisor = 0;
    int64_t fingerprint_every = 1;
    std::shared_ptr<torch::optim::Optimizer> (*optimizer)(const torch::nn::Module&) = nullptr;
    std::optional<MeshShape> mesh = {};
    bool trains_up = true;
    bool under_init = false;  // built under zero::Init
    std::vector<gannet::ParameterGroup> groups = {};
  };
  std::shared_ptr<ProcessGroup> world = gannet::init_distributed(), experts;
  std::shared_ptr<MixtureImpl> model;
  std::shared_ptr<gannet::Engine<MixtureImpl>> engine;

  static uint32_t degree(const char* axis) {
    const std::string text = variable(axis);
    return text.empty() ? 1 : static_cast<uint32_t>(std::stoul(text));
  }
  // Mesh of the environment's degrees, in the order of the config's.
  static MeshShape layout(uint32_t ranks) {
    const uint32_t expert = degree("EXPERT"), tensor = degree("TENSOR");
    return MeshShape({{"expert_data", ranks / expert / tensor}, {"expert", expert}, {"tensor", tensor}});
  }
  explicit MixtureRun(Dict config, int64_t seed = 1) : MixtureRun(std::move(config), How{.seed = seed}) {}
  MixtureRun(Dict config, const How& how) {
    torch::set_num_threads(1);
    for (const auto& ranks : (how.mesh ? *how.mesh : layout(world->size())).groups("expert"))
      if (auto mine = world->subset(ranks)) experts = mine;
    Dict own{{"fingerprint_every", how.fingerprint_every}};
    if (!how.mesh)
      own["mesh"] = Dict{{"expert", static_cast<int64_t>(degree("EXPERT"))}, {"tensor", static_cast<int64_t>(degree("TENSOR"))}};
    add_own(config, own);
    config["train_micro_batch_size_per_gpu"] = rows();
    torch::manual_seed(how.seed);
    {
      std::optional<gannet::zero::Init> init;
      if (how.under_init) init.emplace(gannet::zero::Init::Options{.config = config});
      model = std::make_shared<MixtureImpl>(*experts, how.divisor, how.trains_up);
    }
    if (how.optimizer) config.erase("optimizer");
    engine = gannet::initialize(model, {.config = config,
                                        .model_parameters = how.groups,
                                        .optimizer = how.optimizer ? how.optimizer(*model) : nullptr,
                                        .mesh = how.mesh})
                 .engine;
  }
  int64_t rows() const { return 16 / (world->size() / degree("TENSOR")); }
  at::Tensor backward(int64_t batch) {
    auto [x, y] = make_batch(batch * engine->world_size() + engine->rank(), rows());
    const at::Tensor loss = engine->forward(x, y);
    engine->backward(loss);
    return loss;
  }
  // All ranks together see the same 16 samples in a batch, however many they are.
  void train(int64_t first, int64_t micro_batches) {
    for (int64_t i = first; i < first + micro_batches; ++i) {
      const double loss = engine->mean(backward(i).item<double>());
      if (engine->step().boundary && world->rank() == 0)
        std::cout << std::setprecision(10) << "figure: " << loss << " " << *engine->get_global_grad_norm() << std::endl;
    }
  }
};

}  // namespace gannet::test
