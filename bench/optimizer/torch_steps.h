// The same step with LibTorch's operators: bf16 gradients to fp32, overflow check, norm, unscale,
// clip, AdamW, fp32 to bf16, each a separate pass over all tensors of one model.
#pragma once

#include <ATen/ATen.h>
#include <torch/optim/adamw.h>

#include <vector>

namespace gannet::bench {

class TorchStep {
 public:
  TorchStep(uint64_t numel, uint64_t tensors, double loss_scale) : loss_scale_(loss_scale) {
    const auto fp32 = at::TensorOptions().dtype(at::kFloat);
    for (uint64_t t = 0; t < tensors; ++t) {
      const auto size = static_cast<int64_t>(numel * (t + 1) / tensors - numel * t / tensors);
      param.push_back(at::full({size}, 0.5, fp32));
      param.back().mutable_grad() = at::zeros({size}, fp32);
      grad16_.push_back(at::full({size}, 0.0078125, fp32.dtype(at::kBFloat16)));
      out16_.push_back(at::zeros({size}, fp32.dtype(at::kBFloat16)));
    }
  }
  virtual ~TorchStep() = default;

  void run() {
    at::NoGradGuard no_grad;
    std::vector<at::Tensor> norms;
    for (size_t t = 0; t < param.size(); ++t) {
      grad(t).copy_(grad16_[t]);
      norms.push_back(at::norm(grad(t)));
    }
    const double norm = at::norm(at::stack(norms)).item<double>();
    if (!std::isfinite(norm)) return;
    const double clip = std::max(1.0, (norm / loss_scale_ + 1e-6) / 1.0);
    update(1 / (loss_scale_ * clip));
    for (size_t t = 0; t < param.size(); ++t) out16_[t].copy_(param[t]);
  }

 protected:
  at::Tensor& grad(size_t t) { return param[t].mutable_grad(); }
  // Unscales, clips and updates.
  virtual void update(double scale) = 0;
  std::vector<at::Tensor> param;

 private:
  double loss_scale_;
  std::vector<at::Tensor> grad16_, out16_;
};

class TorchAdamWStep : public TorchStep {
 public:
  TorchAdamWStep(uint64_t numel, uint64_t tensors, double loss_scale)
      : TorchStep(numel, tensors, loss_scale), adamw_(param, torch::optim::AdamWOptions(1e-3).weight_decay(0.01)) {}

 private:
  void update(double scale) override {
    for (size_t t = 0; t < param.size(); ++t) grad(t).mul_(scale);
    adamw_.step();
  }
  torch::optim::AdamW adamw_;
};

class FusedAdamWStep : public TorchStep {
 public:
  FusedAdamWStep(uint64_t numel, uint64_t tensors, double loss_scale) : TorchStep(numel, tensors, loss_scale) {
    for (auto& p : param) {
      exp_avg_.push_back(at::zeros_like(p));
      exp_avg_sq_.push_back(at::zeros_like(p));
      steps_.push_back(at::zeros({}, p.options()));
    }
  }

 private:
  void update(double scale) override {
    std::vector<at::Tensor> grads;
    for (size_t t = 0; t < param.size(); ++t) {
      grads.push_back(grad(t));
      steps_[t].add_(1);
    }
    // grad_scale divides the gradient inside the kernel, LibTorch's way to unscale and clip without
    // an extra pass.
    at::_fused_adamw_(param, grads, exp_avg_, exp_avg_sq_, {}, steps_, 1e-3, 0.9, 0.999, 0.01, 1e-8, false, false,
                      at::full({}, 1 / scale, param[0].options()));
  }
  std::vector<at::Tensor> exp_avg_, exp_avg_sq_, steps_;
};

}  // namespace gannet::bench
