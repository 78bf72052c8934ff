#include "pipeline/layer_costs.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gannet/error.h>
#include <gannet/lazy.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <set>

#include "base/format.h"
#include "base/outcome.h"
#include "base/text.h"
#include "pipeline/kept_generators.h"
#include "pipeline/layer_facts.h"

namespace gannet::pipeline {
namespace {

// Net bytes that this thread allocates while LibTorch reports its allocations to this object.
class CountedBytes : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* /*memory*/, int64_t size, size_t /*allocated*/, size_t /*reserved*/, c10::Device) override {
    bytes += size;
  }
  void reportOutOfMemory(int64_t /*size*/, size_t /*allocated*/, size_t /*reserved*/, c10::Device) override {}
  bool memoryProfilingEnabled() const override { return true; }
  int64_t bytes = 0;
};

// While this object lives, a layer's lazy modules are built and its modules are on the device.
class LayerOnDevice {
 public:
  LayerOnDevice(const Layer& layer, at::Device device) {
    try {
      take(layer, device);
    } catch (...) {
      give_back();
      throw;
    }
  }
  ~LayerOnDevice() { give_back(); }
  LayerOnDevice(const LayerOnDevice&) = delete;
  LayerOnDevice& operator=(const LayerOnDevice&) = delete;
  const std::vector<at::Tensor>& trained() const { return trained_; }

 private:
  void take(const Layer& layer, at::Device device) {
    std::set<const void*> seen;
    for (std::shared_ptr<torch::nn::Module> module : layer.modules()) {
      if (!seen.insert(module.get()).second) continue;
      if (auto* const unbuilt = dynamic_cast<detail::LazyModule*>(module.get())) {
        lazy_.push_back(unbuilt);
        unbuilt->build();
        module = unbuilt->built();
      } else {
        for (const at::Tensor& buffer : module->buffers())
          if (buffer.defined()) buffers_.emplace_back(buffer, buffer.detach().clone());
      }
      const std::vector<at::Tensor> own = module->parameters();
      const at::Device home = own.empty() ? device : own.front().device();
      if (home != device) {
        module->to(device);
        moved_.emplace_back(module, home);
      }
      for (const at::Tensor& parameter : module->parameters())
        if (parameter.requires_grad() && seen.insert(parameter.unsafeGetTensorImpl()).second) trained_.push_back(parameter);
    }
  }
  void give_back() {
    const at::NoGradGuard no_grad;
    for (auto& [module, home] : moved_) module->to(home);
    for (auto& [buffer, before] : buffers_) buffer.copy_(before);
    for (detail::LazyModule* const module : lazy_) module->release();
  }

  std::vector<detail::LazyModule*> lazy_;
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, at::Device>> moved_;
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;  // (buffer, copy of its values)
  std::vector<at::Tensor> trained_;
};

std::chrono::steady_clock::time_point now(const RankContext& ranks) {
  if (!ranks.computes_on_host()) ranks.accelerator->synchronize(ranks.device_index());
  return std::chrono::steady_clock::now();
}

// Measures `forward` on `wire` and its backward. Replaces `wire` with the outputs.
LayerCost cost_of(const std::function<Wire(const Wire&)>& forward, Wire& wire, const std::vector<at::Tensor>& trained,
                  const RankContext& ranks) {
  const at::AutoGradMode grad_mode(true);
  LayerCost cost{std::numeric_limits<double>::infinity(), 0, 0};
  for (const at::Tensor& parameter : trained) cost.parameters += parameter.numel();
  Wire outputs;
  for (int run = 0; run < 3; ++run) {
    Wire inputs;
    std::vector<at::Tensor> wanted = trained;
    for (const at::Tensor& tensor : wire) {
      // Not a leaf, so that the layer may change it in place.
      inputs.push_back(tensor.defined() && tensor.requires_grad() ? tensor.detach().requires_grad_().clone() : tensor);
      if (inputs.back().defined() && inputs.back().requires_grad()) wanted.push_back(inputs.back());
    }
    outputs.clear();  // LibTorch warns if memory allocated before reporting began is freed
    const auto counted = std::make_shared<CountedBytes>();
    const auto begin = now(ranks);
    {
      const c10::DebugInfoGuard counting(c10::DebugInfoKind::PROFILER_STATE, counted);
      outputs = forward(inputs);
    }
    cost.kept_bytes = static_cast<double>(std::max<int64_t>(0, counted->bytes));
    std::vector<at::Tensor> roots, gradients;
    for (const at::Tensor& output : outputs)
      if (output.defined() && output.requires_grad()) {
        roots.push_back(output);
        gradients.push_back(at::ones_like(output.detach()));
      }
    if (!roots.empty() && !wanted.empty())
      torch::autograd::grad(roots, wanted, gradients, /*retain_graph=*/false, /*create_graph=*/false, /*allow_unused=*/true);
    cost.seconds = std::min(cost.seconds, std::chrono::duration<double>(now(ranks) - begin).count());
  }
  for (at::Tensor& output : outputs)
    if (output.defined()) output = output.detach().requires_grad_(output.requires_grad());
  wire = std::move(outputs);
  return cost;
}

// Runs `measure` on a layer. Errors other than out of memory blame the sample or the model.
template <class Measure>
void measuring(const Layer& layer, const std::string& where, const Measure& measure) {
  const auto refuse = [&](const std::string& what, const std::string& next) {
    throw Error(ErrorCode::kArgument,
                formatted("{}: layer '{}', measured with pipe::Options::sample: {}", where, printable(layer.name()),
                          what.substr(0, what.find('\n'))),
                next);
  };
  try {
    measure();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kOutOfMemory) throw;
    refuse(error.message(), error.next_step());
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const std::exception& error) {
    refuse(error.what(), "give a micro-batch as train_batch() gets it: inputs and labels of the usual shapes and dtypes");
  }
}

Wire moved(Wire wire, at::Device device) {
  for (at::Tensor& tensor : wire)
    if (tensor.defined()) tensor = tensor.detach().to(device);
  return wire;
}

}  // namespace

std::vector<LayerCost> measured_costs(const std::vector<Layer>& layers, const pipe::Options& options, const RankContext& ranks,
                                      const std::string& where) {
  std::string mine;
  if (ranks.is_first())
    mine = outcome([&] {
      if (!options.sample)
        throw Error(ErrorCode::kConfig,
                    formatted("{}: the layers are divided by a measured micro-batch, and there is none", where),
                    "give pipe::Options a `sample`: a micro-batch as train_batch() gets it");
      const Wire& inputs = options.sample->inputs;
      if (std::any_of(inputs.begin(), inputs.end(), [](const at::Tensor& one) { return one.defined() && one.numel() == 0; }))
        throw Error(ErrorCode::kConfig, formatted("{}: pipe::Options::sample has an input without elements", where),
                    "give a micro-batch of the usual size");
      const KeptGenerators kept(ranks.device);
      Wire wire = moved(inputs, ranks.device);
      const Wire labels = moved(options.sample->labels, ranks.device);
      std::vector<LayerCost> costs;
      for (size_t l = 0; l < layers.size(); ++l) {
        const bool is_last = l + 1 == layers.size();
        const auto forward = [&](const Wire& given) {
          Wire outputs = layers[l](given);
          return is_last && options.loss_fn ? Wire{options.loss_fn(outputs, labels)} : outputs;
        };
        measuring(layers[l], where, [&] {
          const LayerOnDevice on_device(layers[l], ranks.device);
          costs.push_back(cost_of(forward, wire, on_device.trained(), ranks));
        });
      }
      return std::string(reinterpret_cast<const char*>(costs.data()), costs.size() * sizeof(LayerCost));
    });
  else
    mine = outcome([] { return std::string(); });
  const std::string measured = results_of(ranks.world_group->gather_texts(mine))[0];
  std::vector<LayerCost> costs(measured.size() / sizeof(LayerCost));
  std::memcpy(costs.data(), measured.data(), measured.size());
  return costs;
}

}  // namespace gannet::pipeline
