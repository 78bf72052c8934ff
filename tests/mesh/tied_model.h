// A model whose first and last layers share a weight, whole or cut into stages of a pipeline that each hold a copy of it; its
// engine, and the pipeline's messages.
#pragma once

#include <cstring>
#include <functional>
#include <iomanip>
#include <optional>

#include "mesh/split_model.h"

namespace gannet::test {

// first (words, a bias) -> middle -> last (words again, a matrix): the layers of this stage. Cut in
// two, the second stage has only the last layer.
struct StagesImpl : torch::nn::Module {
  struct How {
    uint32_t stage = 0, stages = 1;
    const char* tie = "words";  // null: not declared
    bool trains_words = true;
  };
  explicit StagesImpl(const How& how) : stage(how.stage), stages(how.stages) {
    const at::Tensor words = torch::randn({12, 8}) * 0.3, matrix = torch::randn({12, 12}) * 0.3;
    middle_ = torch::nn::Linear(12, 12);
    if (stage == 0) {
      first_ = register_module("first", std::make_shared<torch::nn::Module>());
      first_->register_parameter("words", words, how.trains_words);
      first_->register_parameter("bias", torch::zeros({12}));
    }
    if (stage == (stages == 3 ? 1u : 0u)) register_module("middle", middle_);
    if (stage + 1 == stages) {
      last_ = register_module("last", std::make_shared<torch::nn::Module>());
      // A stage that makes its own copy leaves it to initialize to take the first one's values.
      last_->register_parameter("words", stage == 0 ? first_->named_parameters()["words"] : torch::ones({12, 8}),
                                how.trains_words);
      last_->register_parameter("matrix", matrix);
    }
    if (how.tie)
      for (const auto& layer : {first_, last_})
        if (layer) gannet::declare_tied(layer->named_parameters()["words"], how.tie);
  }
  at::Tensor forward(const at::Tensor& input, const at::Tensor& target) {
    at::Tensor values = input.to(parameters()[0].scalar_type());
    if (first_) values = torch::tanh(at::linear(values, own(first_, "words"), own(first_, "bias")));
    if (stage == (stages == 3 ? 1u : 0u)) values = torch::tanh(middle_(values));
    if (!last_) return values;
    const at::Tensor output = at::matmul(at::matmul(values, own(last_, "matrix")), own(last_, "words")).narrow(1, 0, 4);
    return torch::mse_loss(output.to(torch::kFloat), target.to(torch::kFloat));
  }
  at::Tensor words() { return own(first_ ? first_ : last_, "words"); }
  uint32_t stage, stages;

 private:
  static at::Tensor own(const std::shared_ptr<torch::nn::Module>& layer, const char* name) {
    return layer->named_parameters()[name];
  }
  std::shared_ptr<torch::nn::Module> first_, last_;
  torch::nn::Linear middle_{nullptr};
};

struct StagesRun {
  struct How {
    int64_t seed = 1;
    int64_t fingerprint_every = 1;
    bool trains_words = true;
    bool under_init = false;
    std::function<void(StagesImpl&)> prepare = nullptr;  // before initialize
    std::function<const char*(uint32_t rank)> tie = nullptr;
    std::function<std::vector<gannet::ParameterGroup>(StagesImpl&)> groups = nullptr;
  };
  std::shared_ptr<ProcessGroup> world = gannet::init_distributed(), before, behind;  // this rank and the one of that stage
  std::shared_ptr<StagesImpl> model;
  std::shared_ptr<gannet::Engine<StagesImpl>> engine;

  static uint32_t stages() { return variable("PIPE").empty() ? 1 : static_cast<uint32_t>(std::stoul(variable("PIPE"))); }
  explicit StagesRun(Dict config, int64_t seed = 1) : StagesRun(std::move(config), How{.seed = seed}) {}
  StagesRun(Dict config, const How& how) {
    torch::set_num_threads(1);
    const uint32_t data = world->size() / stages(), stage = world->rank() / data;
    for (uint32_t rank = 0; rank + data < world->size(); ++rank)
      if (auto pair = world->subset({rank, rank + data})) (rank == world->rank() ? behind : before) = pair;
    add_own(config, {{"mesh", Dict{{"pipe", static_cast<int64_t>(stages())}}}, {"fingerprint_every", how.fingerprint_every}});
    config["train_micro_batch_size_per_gpu"] = rows();
    torch::manual_seed(how.seed);
    {
      std::optional<gannet::zero::Init> init;
      if (how.under_init) init.emplace(gannet::zero::Init::Options{.config = config});
      model = std::make_shared<StagesImpl>(
          StagesImpl::How{stage, stages(), how.tie ? how.tie(world->rank()) : "words", how.trains_words});
    }
    if (how.prepare) how.prepare(*model);
    std::vector<gannet::ParameterGroup> groups;
    if (how.groups) groups = how.groups(*model);
    engine = gannet::initialize(model, {.config = config, .model_parameters = groups}).engine;
  }
  int64_t rows() const { return 16 / (world->size() / stages()); }
  bool is_last() const { return model->stage + 1 == stages(); }

  // A pipeline with one micro-batch in flight. What one of the two does not send is zeros.
  static at::Tensor exchange(const std::shared_ptr<ProcessGroup>& pair, const at::Tensor& sent, int64_t rows) {
    return Summed<true>::sum(sent.defined() ? sent.detach().to(torch::kFloat) : torch::zeros({rows, 12}), pair.get());
  }
  at::Tensor backward(int64_t batch) {
    auto [x, y] = make_batch(batch * engine->world_size() + engine->rank(), rows());
    at::Tensor input = x;
    if (before) input = exchange(before, {}, rows()).requires_grad_(true);
    const at::Tensor output = engine->forward(input, y);
    if (behind) {
      exchange(behind, output, rows());
      const at::Tensor gradient = exchange(behind, {}, rows());
      engine->backward((output.to(torch::kFloat) * gradient).sum(), {.scale_wrt_gas = false});
    } else {
      engine->backward(output);
    }
    if (before) exchange(before, input.grad(), rows());
    return output;
  }
  void train(int64_t first, int64_t micro_batches) {
    for (int64_t i = first; i < first + micro_batches; ++i) {
      const at::Tensor output = backward(i);
      const double loss = engine->mean(is_last() ? output.item<double>() : 0);  // every rank of all stages calls it
      if (engine->step().boundary && is_last() && engine->rank() == 0)
        std::cout << std::setprecision(10) << "figure: " << loss << " " << *engine->get_global_grad_norm() << std::endl;
    }
  }
  // The tied weight as each stage that holds it has it, to the bit.
  void require_equal_copies(const std::string& where) {
    for (const auto& [name, value] : engine->fp32_parameters()) {
      if (name != "first.words" && name != "last.words") continue;
      uint64_t hash = 0;
      const at::Tensor flat = value.contiguous();
      for (int64_t i = 0; i < flat.numel(); ++i) {
        uint32_t bits;
        std::memcpy(&bits, flat.data_ptr<float>() + i, 4);
        hash = hash * 1'000'003 + bits;
      }
      std::cout << "copy: " << where << " " << hash << std::endl;
    }
  }
};

}  // namespace gannet::test
