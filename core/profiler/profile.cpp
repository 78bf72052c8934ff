#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gannet/error.h>
#include <gannet/profile.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>

#include <chrono>

#include "base/format.h"
#include "base/text.h"
#include "profiler/memory.h"
#include "profiler/recorder.h"
#include "profiler/report.h"

namespace gannet {

ModelProfile::Work& ModelProfile::Work::operator+=(const Work& other) {
  flops += other.flops;
  macs += other.macs;
  seconds += other.seconds;
  return *this;
}

ModelProfile::Memory& ModelProfile::Memory::operator+=(const Memory& other) {
  parameters += other.parameters;
  buffers += other.buffers;
  gradients += other.gradients;
  masters += other.masters;
  states += other.states;
  activations += other.activations;
  return *this;
}

const ModelProfile::Module& ModelProfile::module(const std::string& name) const {
  std::vector<std::string> names;
  for (const Module& one : modules) {
    if (one.name == name) return one;
    names.push_back(one.name);
  }
  throw Error(ErrorCode::kNotFound, formatted("the profile has no module '{}'{}", name, did_you_mean(name, names)),
              "names are those of named_modules(); \"\" is the model");
}

std::string ModelProfile::to_string(const ProfileText& text) const { return profiler::report(*this, text); }

namespace {

class Clock {
 public:
  explicit Clock(at::Device device) : device_(device) {}
  double seconds(const std::function<void()>& work) const {
    wait();
    const auto began = std::chrono::steady_clock::now();
    work();
    wait();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  }

 private:
  void wait() const {
    if (!device_.is_cpu()) c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
  }
  at::Device device_;
};

}  // namespace

ModelProfile profile_forward(const torch::nn::Module& model, const std::function<at::Tensor()>& forward,
                             const ProfileOptions& options) {
  std::vector<at::Tensor> trained;
  for (const at::Tensor& parameter : model.parameters())
    if (parameter.requires_grad()) trained.push_back(parameter);
  const auto parameters = model.parameters();
  const at::Device device = parameters.empty() ? at::kCPU : parameters.front().device();
  for (int64_t i = 0; i < options.warm_up; ++i) forward();

  auto recorder = std::make_shared<profiler::OperatorRecorder>(model, device.is_cpu());
  const Clock clock(device);
  at::Tensor result;
  double forward_seconds = 0, backward_seconds = 0;
  {
    const zero::ObserverScope armed(recorder);
    forward_seconds = clock.seconds([&] { result = forward(); });
    recorder->listen(false);
    recorder->end_forward();
    if (options.backward && result.defined() && result.requires_grad() && !trained.empty()) {
      const at::Tensor seed = at::ones_like(result);
      recorder->listen(true);
      backward_seconds =
          clock.seconds([&] { torch::autograd::grad({result}, trained, {seed}, std::nullopt, false, /*allow_unused=*/true); });
    }
  }
  ModelProfile profile = recorder->profile();
  profile.forward_seconds = forward_seconds;
  profile.backward_seconds = backward_seconds;
  profiler::add_own_memory(profile, recorder->modules(), model);
  return profile;
}

}  // namespace gannet
