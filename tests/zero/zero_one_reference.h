// 0/1 Adam on N ranks in one process, tensor by tensor with LibTorch's operators, and with counters in place of functions of the
// step: slow and plain. It shares nothing with the plugin.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <vector>

#include "zero/onebit_reference.h"

namespace gannet::test {

// The counters of DeepSpeed's ZeroOneAdam.
struct ZeroOneCounters {
  int64_t var_freeze_step, var_update_scaler, local_step_scaler, local_step_clipper;
  int64_t step = 0, var_interval = 1, var_counter = 0, local_interval = 1, local_counter = 0;
  bool is_local = false, updates_variance = false, averages_updates = false;

  void begin() {
    ++step;
    is_local = step > var_freeze_step;
    updates_variance = !is_local && step % var_interval == 0;
    averages_updates = is_local && step % local_interval == 0;
  }
  void end() {
    if (updates_variance && ++var_counter == var_update_scaler) {
      var_counter = 0;
      var_interval *= 2;
    }
    if (is_local && ++local_counter == local_step_scaler) {
      local_counter = 0;
      local_interval = std::min(local_step_clipper, 2 * local_interval);
    }
  }
};

struct ZeroOneOptions {
  int64_t ranks = 1;
  ZeroOneCounters counters;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0, clipping = 0;
  int64_t bucket_numel = 400;
};

class ZeroOneReference {
 public:
  using Tensors = std::vector<at::Tensor>;

  ZeroOneReference(const Tensors& parameters, const ZeroOneOptions& options) : counters(options.counters), o_(options) {
    for (const at::Tensor& parameter : parameters) {
      common.push_back(parameter.detach().to(torch::kFloat).flatten().clone());
      exp_avg_sq.push_back(torch::zeros_like(common.back()));
      numels_.push_back(common.back().numel());
    }
    for (int64_t r = 0; r < o_.ranks; ++r) {
      masters.push_back(common);
      exp_avg.push_back(exp_avg_sq);
    }
    averages = averages_of(numels_, o_.ranks, o_.bucket_numel);
  }

  // `gradients`: [ranks][tensors], unscaled, each of the rank's own parameters. `average`: how the host's reduction rounds.
  template <class Average>
  void step(const std::vector<Tensors>& gradients, double lr, const Average& average) {
    const bool was_local = counters.is_local;
    counters.begin();
    if (counters.is_local && !was_local) averages = averages_of(numels_, o_.ranks, o_.bucket_numel);  // without errors
    const bool is_averaged = counters.updates_variance || o_.ranks == 1;
    Tensors mean;
    for (size_t t = 0; t < numels_.size(); ++t) mean.push_back(average(of_tensor(gradients, t)));
    norm = is_averaged ? norm_of({mean}) : norm_of(gradients);
    const double clip = o_.clipping > 0 && (norm + 1e-6) / o_.clipping > 1 ? o_.clipping / (norm + 1e-6) : 1;
    if (counters.is_local) lr_sum += lr;
    for (size_t t = 0; t < numels_.size(); ++t) {
      Tensors given;  // [ranks] what each puts into its momentum
      for (const at::Tensor& gradient : of_tensor(gradients, t)) given.push_back(gradient.to(torch::kFloat) * clip);
      if (is_averaged) given.assign(static_cast<size_t>(o_.ranks), mean[t] * clip);
      if (counters.updates_variance) exp_avg_sq[t] = moved(exp_avg_sq[t], given[0].square(), o_.beta2);
      if (!counters.is_local && !is_averaged) given.assign(static_cast<size_t>(o_.ranks), averages[t].of(given));
      const at::Tensor is_used = exp_avg_sq[t] > 0, zero = torch::zeros_like(exp_avg_sq[t]);
      const at::Tensor denominator = exp_avg_sq[t].sqrt() + o_.eps;
      Tensors ways;  // [ranks] from the common parameters, times the denominator
      for (size_t r = 0; r < masters.size(); ++r) {
        at::Tensor &p = masters[r][t], &m = exp_avg[r][t];
        m = torch::where(is_used, moved(m, given[r], o_.beta1), zero);
        p = p - lr * (m / denominator + o_.weight_decay * p);
        ways.push_back((p - common[t]) * denominator);
      }
      if (counters.is_local && !counters.averages_updates) continue;
      if (counters.averages_updates) {
        const at::Tensor way = o_.ranks > 1 ? averages[t].of(ways) : ways[0];
        for (size_t r = 0; r < masters.size(); ++r) {
          if (o_.ranks > 1) masters[r][t] = torch::where(is_used, common[t] + way / denominator, masters[r][t]);
          exp_avg[r][t] = torch::where(is_used, -way / lr_sum, zero);
        }
      }
      common[t] = masters[0][t].clone();
    }
    if (counters.averages_updates) lr_sum = 0;
    counters.end();
  }

  ZeroOneCounters counters;
  double norm = 0, lr_sum = 0;
  std::vector<Tensors> masters, exp_avg;  // [ranks][tensors]
  Tensors exp_avg_sq, common;             // [tensors]
  std::vector<OneBitAverage> averages;    // [tensors]

 private:
  static Tensors of_tensor(const std::vector<Tensors>& all, size_t t) {
    Tensors one;
    for (const Tensors& of_rank : all) one.push_back(of_rank[t].flatten());
    return one;
  }
  static double norm_of(const std::vector<Tensors>& all) {
    double squares = 0;
    for (const Tensors& of_rank : all)
      for (const at::Tensor& g : of_rank)
        squares += g.to(torch::kDouble).square().sum().item<double>() / static_cast<double>(all.size());
    return std::sqrt(squares);
  }
  static at::Tensor moved(const at::Tensor& moment, const at::Tensor& value, double beta) {
    return moment * beta + value * (1 - static_cast<float>(beta));
  }

  ZeroOneOptions o_;
  std::vector<int64_t> numels_;
};

}  // namespace gannet::test
