// The plain side of the rows: a training loop without an engine.
#include <cmath>
#include <set>

#include "guest/trainer.h"

namespace guest {
namespace {

constexpr double kFp16Scale = 256;

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

}  // namespace

std::shared_ptr<Trainer> make_plain(std::shared_ptr<Model> model, const Setting& setting, const Options& options) {
  return std::make_shared<Plain>(std::move(model), setting, options);
}

}  // namespace guest
