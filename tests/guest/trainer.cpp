#include "guest/trainer.h"

#include <gannet/zero.h>

#include "tensor/move_leaf.h"

namespace guest {
namespace {

std::string accelerator() {
  const char* chosen = std::getenv("GANNET_TEST_ACCELERATOR");
  return chosen && *chosen ? chosen : "cpu";
}
at::Device opened = at::kCPU;

// Stage 3 with nothing whole on a rank: reading and writing parameters outside forward is refused, by the parameter's name.
bool is_refused_where_nothing_is_whole(const Setting& setting, const std::string& told) {
  if (!setting.is_sharded || told.find("parameter '") == std::string::npos) return false;
  for (const char* why :
       {"is shared out among the ranks", "of which each rank keeps a part", "went with the engine that had its shards"})
    if (told.find(why) != std::string::npos) return true;
  return false;
}

class Ours : public Trainer {
 public:
  Ours(std::shared_ptr<Model> given, const Setting& setting, const gannet::Dict& config, const Options& options)
      : setting_(setting) {
    model = std::move(given);
    accumulation = options.accumulation;
    made_ = gannet::initialize(model, {.config = config, .model_parameters = options.groups});
    engine = made_.engine.get();
    opened = engine->device();
  }
  at::Tensor forward(int64_t index) override {
    const auto [x, y] = batch(index, setting_.rank, setting_.world);
    return made_.engine->forward(x, y);
  }
  void backward(const at::Tensor& loss, bool create_graph) override {
    try {
      refusing_nothing([&] { made_.engine->backward(loss, {.create_graph = create_graph}); });
    } catch (...) {
      micro_ = 0;
      accumulation = made_.engine->gradient_accumulation_steps();  // the step was dropped: a new number counts from here
      throw;
    }
  }
  bool step() override {
    micro_ = 1;
    gannet::StepResult result;
    refusing_nothing([&] { result = made_.engine->step(); });
    if (result.boundary) micro_ = 0;
    accumulation = made_.engine->gradient_accumulation_steps();
    return result.applied;
  }
  void zero_grad() override {
    micro_ = 0;
    made_.engine->zero_grad();
    accumulation = made_.engine->gradient_accumulation_steps();
  }
  void set_accumulation(int64_t micro_batches) override {
    made_.engine->set_train_batch_size(micro_batches * setting_.world * 4);
    accumulation = made_.engine->gradient_accumulation_steps();
  }
  void set_boundary(std::optional<bool> is_boundary) override { made_.engine->set_gradient_accumulation_boundary(is_boundary); }
  void set_lr(double lr) override { made_.engine->set_lr(lr); }
  bool step_is_empty() const override { return micro_ == 0; }
  void each_gradient(const std::function<void(at::Tensor&)>& body) override {
    made_.engine->for_each_gradient([&](const std::string&, at::Tensor& gradient) { body(gradient); });
  }
  at::Tensor scale(const at::Tensor& loss) override { return made_.engine->scale(loss); }
  std::map<std::string, at::Tensor> values() override {
    std::map<std::string, at::Tensor> all;
    for (const auto& [name, value] : made_.engine->fp32_parameters())
      all[name] = (value.is_complex() ? at::view_as_real(value) : value).to(at::kCPU, at::kDouble, false, /*copy=*/true);
    return all;
  }

 private:
  // The engine brings what its own backward and step read.
  template <class Body>
  void refusing_nothing(const Body& body) {
    try {
      body();
    } catch (const std::exception& error) {
      if (const auto named = gannet::error_of(error); named && is_refused_where_nothing_is_whole(setting_, named->what()))
        throw std::logic_error(std::string("in the engine's own call: ") + named->what());
      throw;
    }
  }

  Setting setting_;
  int64_t micro_ = 0;
  gannet::Initialized<Model, gannet::Example> made_;
};

}  // namespace

at::Device device() { return opened; }
bool is_on_cpu() { return accelerator() == "cpu"; }

void move_to_device(torch::nn::Module& module) {
  // LibTorch's set_data(), and with it Module::to(), refuses PrivateUse1 and leaves the members of a CSR tensor on the host
  // (2.11).
  for (const auto& tensors : {module.parameters(), module.buffers()})
    for (const at::Tensor& tensor : tensors)
      if (tensor.defined()) gannet::move_leaf(tensor, tensor.detach().to(opened));
}

std::string Setting::text() const {
  return "stage " + std::to_string(stage) + (is_sharded ? " sharded" : "") + (is_offloaded ? " offloaded" : "") + " " + dtype +
         " on " + std::to_string(world);
}

Net::Net() {
  first = register_module("first", torch::nn::Linear(8, 16));
  second = register_module("second", torch::nn::Linear(16, 4));
}
at::Tensor Net::features(const at::Tensor& x) { return torch::tanh(first(x.to(first->weight.dtype()))); }
at::Tensor Net::forward(const at::Tensor& x, const at::Tensor& y) {
  const at::Tensor out = second(features(x));
  const auto wide = out.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return torch::mse_loss(out.to(wide), y.to(wide));
}

std::pair<at::Tensor, at::Tensor> Trainer::batch(int64_t index, int64_t rank, int64_t world) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(1000 + index * world + rank));
  const at::Tensor x = torch::randn({4, 8}, generator);
  const at::Tensor y =
      torch::stack({x.sum(1), x.select(1, 0) * x.select(1, 1), x.select(1, 0) - x.select(1, 1), x.select(1, 2).abs()}, 1);
  return {x.to(device()), y.to(device())};
}

void Trainer::train(int64_t steps) {
  for (int64_t step = 0; step < steps; ++step)
    for (int64_t micro = accumulation; micro > 0; --micro) micro_batch();
}

gannet::Dict Side::config(const Options& options) const {
  gannet::Dict config{
      {"train_micro_batch_size_per_gpu", 4},
      {"gradient_accumulation_steps", options.accumulation},
      {"gradient_clipping", options.clipping},
      {"accelerator", gannet::Dict{{"type", accelerator()}}},
      {"optimizer",
       gannet::Dict{{"type", "SGD"},
                    {"params",
                     gannet::Dict{{"lr", options.lr}, {"momentum", options.momentum}, {"weight_decay", options.weight_decay}}}}}};
  gannet::Dict zero{{"stage", setting.stage}};
  if (setting.is_sharded) {
    zero["stage3_param_persistence_threshold"] = 0;
    zero["stage3_max_reuse_distance"] = 0;
  }
  if (setting.is_offloaded) zero["offload_optimizer"] = gannet::Dict{{"device", "cpu"}};
  config["zero_optimization"] = zero;
  if (setting.dtype == "bf16") config["bf16"] = gannet::Dict{{"enabled", true}, {"check_grad_overflow", false}};
  if (setting.dtype == "fp16") config["fp16"] = gannet::Dict{{"enabled", true}, {"loss_scale", 256}};
  for (const auto& [key, value] : options.config.entries()) config[key] = value;
  return config;
}

std::shared_ptr<Trainer> Side::trainer(std::shared_ptr<Model> model, const Options& options) {
  if (!model) model = make<Net>(1);
  if (setting.dtype == "fp64") model->to(at::kDouble);
  auto made = is_plain ? make_plain(model, setting, options) : std::make_shared<Ours>(model, setting, config(options), options);
  trainers.push_back(made);
  return made;
}

void Side::drop(std::shared_ptr<Trainer>& trainer) {
  std::erase(trainers, trainer);
  trainer.reset();
}

std::vector<Row>& rows() {
  static std::vector<Row> all;
  return all;
}

void under_guard(Trainer& trainer, const std::vector<at::Tensor>& parameters, bool writes, const std::function<void()>& body) {
  std::optional<gannet::zero::GatheredParameters> guard;
  gannet::zero::GatheredParameters::Options options;
  if (writes) options.write_from = 0;
  if (trainer.engine) guard.emplace(*trainer.engine, parameters, options);
  torch::NoGradGuard no_grad;
  body();
  if (guard) guard->publish();
}

void train_past_a_failing_backward(Side& side, const std::function<void(Trainer&)>& micro_batch) {
  auto t = side.trainer(nullptr, {.accumulation = 2});
  auto fails = std::make_shared<bool>(false);
  t->model->parameters()[0].register_hook([fails](at::Tensor gradient) {
    if (*fails) throw std::runtime_error("a hook of the program");
    return gradient;
  });
  for (int micro = 0; micro < 7; ++micro) {
    *fails = micro == 3;
    try {
      micro_batch(*t);
    } catch (const std::exception&) {
      if (side.is_plain) t->zero_grad();
    }
  }
}

// What LibTorch does not have for devices that are registered at run time: new memory by set_data(), and sparse tensors.
bool is_unsupported_on_checked(const std::string& what) {
  return device().type() == at::kPrivateUse1 && (what.find("incompatible tensor type") != std::string::npos ||
                                                 what.find("'Sparsechecked' backend") != std::string::npos);
}

Outcome run(const Row& row, const Setting& setting) {
  Side plain(setting, true), ours(setting, false);
  std::string told;
  try {
    row.program(ours);
  } catch (const gannet::Error& error) {
    told = error.what();
  } catch (const std::exception& error) {
    // LibTorch's own has our sentence where it takes a parameter's address itself.
    const auto named = gannet::error_of(error);
    const std::string what = error.what();  // LibTorch's have the stack behind the first line
    if (is_unsupported_on_checked(what)) return {Outcome::kTold, what};
    if (!named) return {Outcome::kThird, "another exception than ours: " + what.substr(0, what.find('\n'))};
    told = named->what();
  }
  const std::string& expected = row.told;
  if (!told.empty()) {
    if (expected.empty()) {
      if (is_refused_where_nothing_is_whole(setting, told)) return {Outcome::kTold, told};
      return {Outcome::kThird, "an error where plain LibTorch trains: " + told};
    }
    if (told.find(expected) == std::string::npos) return {Outcome::kThird, "'" + expected + "' is not in: " + told};
    return {Outcome::kTold, told};
  }
  if (!expected.empty()) return {Outcome::kThird, "no error; expected '" + expected + "'"};
  try {
    row.program(plain);
  } catch (const std::exception& error) {
    const std::string what = error.what();
    return {Outcome::kThird, "an error of the plain side: " + what.substr(0, what.find('\n'))};
  }
  if (plain.trainers.size() != ours.trainers.size()) return {Outcome::kThird, "the two sides made other numbers of trainers"};
  const double bound = setting.dtype == "fp64" ? 1e-10 : setting.dtype == "fp32" ? 1e-5 : 5e-2;
  for (size_t i = 0; i < plain.trainers.size(); ++i) {
    const auto expected_values = plain.trainers[i]->values();
    for (const auto& [name, value] : ours.trainers[i]->values()) {
      const auto found = expected_values.find(name);
      if (found == expected_values.end()) return {Outcome::kThird, "the plain side has no '" + name + "'"};
      if (value.numel() == 0) continue;
      const double apart = (value - found->second).norm().item<double>() / std::max(found->second.norm().item<double>(), 1e-3);
      if (!(apart <= bound))
        return {Outcome::kThird, "'" + name + "' (norm " + std::to_string(found->second.norm().item<double>()) + " over " +
                                     std::to_string(value.numel()) + ") is " + std::to_string(apart * 1e6) + "e-6 apart, bound " +
                                     std::to_string(bound * 1e6) + "e-6"};
    }
  }
  return {Outcome::kEqual, ""};
}

}  // namespace guest
