#include "guest/trainer.h"

#include <gannet/zero.h>

#include <cmath>
#include <set>

#include "tensor/move_leaf.h"

namespace guest {
namespace {

constexpr double kFp16Scale = 256;

std::string accelerator() {
  const char* chosen = std::getenv("GANNET_TEST_ACCELERATOR");
  return chosen && *chosen ? chosen : "cpu";
}
at::Device opened = at::kCPU;

at::ScalarType type_of(const std::string& dtype) {
  return dtype == "bf16" ? at::kBFloat16 : dtype == "fp16" ? at::kHalf : dtype == "fp64" ? at::kDouble : at::kFloat;
}

// SGD with momentum on fp32 masters, written out. A parameter that requires a gradient and got none counts as zeros, as in
// DeepSpeed's ZeRO (docs/differences.md).
class Plain : public Trainer {
 public:
  Plain(std::shared_ptr<Model> given, const Setting& setting, const Options& options) : setting_(setting), options_(options) {
    model = std::move(given);
    move_to_device(*model);
    accumulation = options.accumulation;
    for (const auto& group : options.groups)
      for (const auto& parameter : group.parameters) listed_.push_back(parameter.unsafeGetTensorImpl());
    const bool is_16_bit = setting.dtype == "bf16" || setting.dtype == "fp16";
    for (const auto& entry : model->named_parameters()) {
      at::Tensor parameter = entry.value();
      if (is_16_bit && parameter.is_floating_point()) {
        if (parameter.scalar_type() == type_of(setting.dtype)) continue;  // tied, and cast already
        masters_[entry.key()] = parameter.detach().to(at::kFloat).clone();
        parameter.set_data(parameter.detach().to(type_of(setting.dtype)));
      }
    }
  }

  at::Tensor forward(int64_t index) override {
    if (at::GradMode::is_enabled()) take_in();  // an evaluation is no part of a step
    at::Tensor loss;
    for (int64_t rank = 0; rank < setting_.world; ++rank) {
      const auto [x, y] = batch(index, rank, setting_.world);
      const at::Tensor one = model->forward(x, y) / static_cast<double>(setting_.world);
      loss = loss.defined() ? loss + one : one;
    }
    return loss;
  }
  double scale_of_loss() const { return (setting_.dtype == "fp16" ? kFp16Scale : 1.0) / static_cast<double>(accumulation); }
  at::Tensor scale(const at::Tensor& loss) override { return loss * scale_of_loss(); }
  void backward(const at::Tensor& loss, bool create_graph) override {
    // The program skips the step: what was gathered is dropped. On a device the engine does not wait for the loss, and skips the
    // step at its end, by its gradients.
    if (device().is_cpu() && !std::isfinite(loss.item<double>())) {
      zero_grad();
      throw gannet::Error(gannet::ErrorCode::kNonFinite, "the loss is not finite");
    }
    scale(loss).backward({}, create_graph, create_graph);
    note_gradients();
  }
  // Gradients that the program clears to none after the last backward are left out of the update,
  // as in torch.optim.
  void note_gradients() {
    came_.clear();
    for (const auto& entry : model->named_parameters())
      if (entry.value().grad().defined()) came_.insert(entry.key());
  }
  bool step() override {
    const bool is_boundary = boundary_ ? *boundary_ : micro_ + 1 >= accumulation;
    ++micro_;
    if (!is_boundary) return false;
    take_in();
    std::vector<at::Tensor> gradients;
    std::vector<std::pair<std::string, at::Tensor>> moving;
    double squares = 0;
    std::set<const void*> seen;  // tied ones once
    for (const auto& entry : model->named_parameters()) {
      at::Tensor parameter = entry.value();
      if (!seen.insert(parameter.unsafeGetTensorImpl()).second || !is_listed(parameter) ||
          (!parameter.requires_grad() && !parameter.grad().defined()) ||
          (came_.contains(entry.key()) && !parameter.grad().defined()))
        continue;
      at::Tensor gradient = parameter.grad().defined() ? parameter.grad().detach() : at::zeros_like(parameter);
      if (gradient.is_sparse()) gradient = gradient.to_dense();
      gradient = gradient.to(master_of(entry.key(), parameter).scalar_type()) / (setting_.dtype == "fp16" ? kFp16Scale : 1.0);
      const at::Tensor real = gradient.is_complex() ? at::view_as_real(gradient) : gradient;
      const double largest = real.numel() ? real.abs().max().item<double>() : 0;
      if (!std::isfinite(largest)) {
        drop();
        throw gannet::Error(gannet::ErrorCode::kNonFinite, "a gradient is not finite");
      }
      if (largest > 0) squares += std::pow(real.to(at::kDouble).div(1e100).norm().item<double>(), 2);
      gradients.push_back(gradient);
      moving.emplace_back(entry.key(), parameter);
    }
    const double norm = 1e100 * std::sqrt(squares);
    const double factor = options_.clipping > 0 ? std::min(1.0, options_.clipping / (norm + 1e-6)) : 1.0;
    torch::NoGradGuard no_grad;
    for (size_t i = 0; i < moving.size(); ++i) {
      at::Tensor master = master_of(moving[i].first, moving[i].second);
      at::Tensor g = gradients[i] * factor + options_.weight_decay * master;
      at::Tensor& buffer = buffers_[moving[i].first];
      buffer = buffer.defined() ? options_.momentum * buffer + g : g.clone();
      master.sub_(options_.lr * buffer);
      if (masters_.count(moving[i].first)) moving[i].second.copy_(master);
    }
    drop();
    return true;
  }
  void zero_grad() override { drop(); }
  void set_accumulation(int64_t micro_batches) override {
    if (micro_ == 0)
      accumulation = micro_batches;
    else
      from_next_ = micro_batches;
  }
  void set_boundary(std::optional<bool> is_boundary) override { boundary_ = is_boundary; }
  void set_lr(double lr) override { options_.lr = lr; }
  bool step_is_empty() const override { return micro_ == 0; }
  void each_gradient(const std::function<void(at::Tensor&)>& body) override {
    const double scale = setting_.dtype == "fp16" ? kFp16Scale : 1.0;
    for (auto& parameter : model->parameters())
      if (parameter.grad().defined()) {
        torch::NoGradGuard no_grad;
        at::Tensor gradient = parameter.grad().to(parameter.scalar_type() == at::kDouble ? at::kDouble : at::kFloat) / scale;
        body(gradient);
        parameter.mutable_grad().copy_(gradient * scale);
      }
  }
  std::map<std::string, at::Tensor> values() override {
    take_in();
    std::map<std::string, at::Tensor> all;
    for (const auto& entry : model->named_parameters()) {
      const at::Tensor master = master_of(entry.key(), entry.value()).detach();
      all[entry.key()] =
          (master.is_complex() ? at::view_as_real(master) : master).to(at::kCPU, at::kDouble, false, /*copy=*/true);
    }
    return all;
  }

 private:
  bool is_listed(const at::Tensor& parameter) const {
    return listed_.empty() || std::find(listed_.begin(), listed_.end(), parameter.unsafeGetTensorImpl()) != listed_.end();
  }
  at::Tensor master_of(const std::string& name, const at::Tensor& parameter) {
    const auto found = masters_.find(name);
    return found == masters_.end() ? parameter : found->second;
  }
  // Adopts the program's writes: an element that is not its master's rounding becomes the master.
  void take_in() {
    torch::NoGradGuard no_grad;
    if (setting_.dtype != "bf16" && setting_.dtype != "fp16") return;
    for (const auto& entry : model->named_parameters()) {
      at::Tensor parameter = entry.value();
      if (!parameter.is_floating_point()) continue;
      auto& master = masters_[entry.key()];
      const bool is_other_type = parameter.scalar_type() != type_of(setting_.dtype);
      if (!master.defined() || is_other_type)
        master = parameter.detach().to(at::kFloat).clone();
      else
        master = at::where(parameter.detach() == master.to(parameter.scalar_type()), master, parameter.detach().to(at::kFloat));
      if (is_other_type) parameter.set_data(parameter.detach().to(type_of(setting_.dtype)));
    }
  }
  void drop() {
    for (auto& parameter : model->parameters()) parameter.mutable_grad().reset();
    micro_ = 0;
    came_.clear();
    if (from_next_ > 0) accumulation = std::exchange(from_next_, 0);
  }

  Setting setting_;
  Options options_;
  std::vector<const void*> listed_;
  std::map<std::string, at::Tensor> masters_, buffers_;
  std::set<std::string> came_;  // parameters with a gradient behind the last backward
  int64_t micro_ = 0, from_next_ = 0;
  std::optional<bool> boundary_;
};

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
  if (opened.type() != at::kPrivateUse1) {
    module.to(opened);
    return;
  }
  // LibTorch's set_data(), and with it Module::to(), refuses such a device.
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
  auto made = is_plain ? std::shared_ptr<Trainer>(std::make_shared<Plain>(model, setting, options))
                       : std::make_shared<Ours>(model, setting, config(options), options);
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
