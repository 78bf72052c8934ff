// 1-bit Adam and 1-bit LAMB on N ranks in one process, tensor by tensor with LibTorch's operators:
// slow and plain. It shares nothing with the plugin, and with the engine only the numbers of its
// layout.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <vector>

#include "params/layout.h"

namespace gannet::test {

struct OneBitOptions {
  int64_t ranks = 1, freeze_step = 1;
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0, clipping = 0;
  int64_t bucket_numel = 400;
  bool lamb = false;
  double max_coeff = 10, min_coeff = 0.01, coeff_beta = 0.9, factor_max = 4, factor_min = 0.5, factor_threshold = 0.1;
};

// The error-compensated average of one tensor.
class OneBitAverage {
 public:
  OneBitAverage(int64_t numel, int64_t ranks, std::vector<int64_t> cuts)
      : server_error(torch::zeros({numel})), ends_(std::move(cuts)) {
    for (int64_t r = 0; r < ranks; ++r) worker_error.push_back(torch::zeros({numel}));
    ends_.push_back(numel);
  }
  at::Tensor of(const std::vector<at::Tensor>& momenta) {
    at::Tensor sum = torch::zeros_like(server_error);
    for (size_t r = 0; r < momenta.size(); ++r) sum = sum + sent_of(momenta[r] + worker_error[r], worker_error[r]);
    const at::Tensor z = sum / static_cast<double>(momenta.size()) + server_error;
    at::Tensor result = torch::empty_like(z);
    int64_t begin = 0;
    for (const int64_t end : ends_) {
      result.slice(0, begin, end).copy_(sent_of(z.slice(0, begin, end), server_error.slice(0, begin, end)));
      begin = end;
    }
    return result;
  }
  at::Tensor server_error;
  std::vector<at::Tensor> worker_error;  // [ranks]

 private:
  // `error` gets what is not sent of x.
  static at::Tensor sent_of(const at::Tensor& x, const at::Tensor& error) {
    const double scale = x.to(torch::kDouble).norm().item<double>() / std::sqrt(static_cast<double>(x.numel()));
    const at::Tensor sent = torch::where(x >= 0, torch::ones_like(x), -torch::ones_like(x)) * static_cast<float>(scale);
    error.copy_(x - sent);
    return sent;
  }
  std::vector<int64_t> ends_;  // of the servers' parts
};

// [tensors], whose servers' parts are cut as the engine's buckets are.
inline std::vector<OneBitAverage> averages_of(const std::vector<int64_t>& numels, int64_t ranks, int64_t bucket_numel) {
  std::vector<OneBitAverage> averages;
  const zero::Layout layout = zero::lay_out(numels, bucket_numel, static_cast<uint32_t>(ranks));
  for (const auto& bucket : layout.buckets)
    for (size_t t = bucket.first; t < bucket.last; ++t) {
      std::vector<int64_t> cuts;
      for (int64_t r = 1; r < ranks; ++r)
        if (const int64_t cut = bucket.offset + bucket.numel / ranks * r - layout.offsets[t]; cut > 0 && cut < numels[t])
          cuts.push_back(cut);
      averages.emplace_back(numels[t], ranks, cuts);
    }
  return averages;
}

class OneBitReference {
 public:
  OneBitReference(const std::vector<at::Tensor>& parameters, const OneBitOptions& options) : o_(options) {
    std::vector<int64_t> numels;
    for (const at::Tensor& parameter : parameters) {
      masters.push_back(parameter.detach().to(torch::kFloat).flatten().clone());
      exp_avg.push_back(torch::zeros_like(masters.back()));
      exp_avg_sq.push_back(torch::zeros_like(masters.back()));
      numels.push_back(masters.back().numel());
    }
    fresh_ = exp_avg_sq;
    coeff_.assign(masters.size(), 0);
    factor_.assign(masters.size(), 1);
    average_ = averages_of(numels, o_.ranks, o_.bucket_numel);
  }

  // `gradients`: [ranks][tensors], unscaled. `average`: how the warm-up's reduction rounds.
  template <class Average>
  void step(const std::vector<std::vector<at::Tensor>>& gradients, const Average& average) {
    ++steps;
    const bool compresses = steps > o_.freeze_step && o_.ranks > 1;
    std::vector<at::Tensor> mean;
    for (size_t t = 0; t < masters.size(); ++t) {
      std::vector<at::Tensor> of_ranks;
      for (const auto& one : gradients) of_ranks.push_back(one[t].flatten());
      mean.push_back(average(of_ranks));
    }
    double squares = 0;
    if (compresses) {
      for (const auto& of_rank : gradients)
        for (const at::Tensor& g : of_rank)
          squares += g.to(torch::kDouble).square().sum().item<double>() / static_cast<double>(o_.ranks);
    } else {
      for (const at::Tensor& g : mean) squares += g.to(torch::kDouble).square().sum().item<double>();
    }
    norm = std::sqrt(squares);
    const double clip = o_.clipping > 0 && (norm + 1e-6) / o_.clipping > 1 ? o_.clipping / (norm + 1e-6) : 1;
    for (size_t t = 0; t < masters.size(); ++t) {
      const at::Tensor before = exp_avg[t];
      if (compresses) {
        std::vector<at::Tensor> momenta;
        for (const auto& of_rank : gradients) momenta.push_back(moved(before, of_rank[t].flatten().to(torch::kFloat) * clip));
        exp_avg[t] = average_[t].of(momenta);
      } else {
        exp_avg[t] = moved(before, mean[t] * clip);
      }
      if (steps <= o_.freeze_step)
        exp_avg_sq[t] = squares_moved(exp_avg_sq[t], mean[t] * clip);
      else
        exp_avg[t] = torch::where(exp_avg_sq[t] > 0, exp_avg[t], torch::zeros_like(exp_avg[t]));
      const at::Tensor denominator = exp_avg_sq[t].sqrt() + o_.eps, direction = exp_avg[t] / denominator;
      const at::Tensor update = direction + o_.weight_decay * masters[t];
      const double rate = o_.lr * (o_.lamb ? lamb_coeff(t, before, direction, update, denominator) : 1.0);
      masters[t] = masters[t] - rate * update;
    }
  }

  int64_t steps = 0;
  double norm = 0;
  std::vector<at::Tensor> masters, exp_avg, exp_avg_sq;

 private:
  at::Tensor moved(const at::Tensor& momentum, const at::Tensor& gradient) const {
    return momentum * o_.beta1 + gradient * (1 - static_cast<float>(o_.beta1));
  }
  at::Tensor squares_moved(const at::Tensor& squares, const at::Tensor& gradient) const {
    return squares * o_.beta2 + gradient.square() * (1 - static_cast<float>(o_.beta2));
  }
  static double norm_of(const at::Tensor& x) { return x.to(torch::kDouble).norm().item<double>(); }

  double lamb_coeff(size_t t, const at::Tensor& before, const at::Tensor& direction, const at::Tensor& update,
                    const at::Tensor& denominator) {
    if (steps <= o_.freeze_step) {
      const double weights = norm_of(masters[t]), length = norm_of(update);
      const double coeff = weights > 0 && length > 0 ? std::clamp(weights / length, o_.min_coeff, o_.max_coeff) : 1;
      if (coeff != 1) coeff_[t] = o_.coeff_beta * coeff_[t] + (1 - o_.coeff_beta) * coeff;
      if (steps == o_.freeze_step) fresh_[t] = exp_avg_sq[t].clone();
      return coeff;
    }
    const at::Tensor gradient = (exp_avg[t] - before * o_.beta1) / (1 - static_cast<float>(o_.beta1));
    fresh_[t] = squares_moved(fresh_[t], gradient);
    const at::Tensor is_used = exp_avg_sq[t] > 0;
    double factor =
        torch::where(is_used, denominator / (fresh_[t].sqrt() + o_.eps), torch::zeros_like(denominator)).max().item<double>();
    if (o_.weight_decay > 0) {
      const double share = std::min(1.0, norm_of(direction) / norm_of(update));
      factor = factor * share + 1 - share;
    }
    factor = std::clamp(factor, o_.factor_min, o_.factor_max);
    factor = std::clamp(factor, factor_[t] * (1 - o_.factor_threshold), factor_[t] * (1 + o_.factor_threshold));
    factor_[t] = factor;
    return coeff_[t] * factor;
  }

  OneBitOptions o_;
  std::vector<OneBitAverage> average_;  // [tensors]
  std::vector<at::Tensor> fresh_;
  std::vector<double> coeff_, factor_;
};

}  // namespace gannet::test
