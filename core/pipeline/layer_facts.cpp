#include "pipeline/layer_facts.h"

#include <c10/util/Type.h>
#include <gannet/error.h>
#include <gannet/lazy.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <set>
#include <string>
#include <typeinfo>

#include "base/format.h"
#include "base/text.h"
#include "control/world.h"
#include "pipeline/kept_generators.h"

namespace gannet::pipeline {
namespace {

detail::LazyModule* lazy(const std::shared_ptr<torch::nn::Module>& module) {
  return dynamic_cast<detail::LazyModule*>(module.get());
}

std::string type_of(const Layer& layer) {
  if (layer.modules().size() != 1) return layer.name();
  const torch::nn::Module& module = *layer.module();
  const auto* const unbuilt = dynamic_cast<const detail::LazyModule*>(&module);
  std::string type = c10::demangle(unbuilt ? unbuilt->type().name() : typeid(module).name());
  type = type.substr(0, type.find('<'));
  if (const size_t colon = type.rfind(':'); colon != std::string::npos) type = type.substr(colon + 1);
  if (type.ends_with("Impl") && type.size() > 4) type.resize(type.size() - 4);
  return type;
}

// The number of trainable elements, each tensor counted once.
int64_t trained_elements(const Layer::Modules& modules) {
  int64_t count = 0;
  std::set<const void*> seen;
  for (const auto& module : modules)
    for (const at::Tensor& parameter : module->parameters())
      if (parameter.requires_grad() && seen.insert(parameter.unsafeGetTensorImpl()).second) count += parameter.numel();
  return count;
}

// Runs `body`, which builds a module of the layer.
template <class Body>
auto building(const Layer& layer, const detail::LazyModule& module, const Body& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    const std::string what = error.what();  // LibTorch appends a stack trace after the first line
    throw Error(ErrorCode::kArgument,
                formatted("the constructor of {}, a Lazy module of layer '{}', threw: {}", c10::demangle(module.type().name()),
                          printable(layer.name()), what.substr(0, what.find('\n'))),
                "see the arguments that its Lazy was given");
  }
}

bool uses(const Layer& layer, const std::shared_ptr<torch::nn::Module>& module) {
  return std::find(layer.modules().begin(), layer.modules().end(), module) != layer.modules().end();
}

}  // namespace

std::string module_name(const Layer& layer, size_t i) { return i == 0 ? layer.name() : formatted("{}_{}", layer.name(), i); }

void visit_modules(const std::vector<Layer>& layers,
                   const std::function<void(const std::string& name, const torch::nn::Module& module)>& visit) {
  const KeptGenerators kept;
  std::set<const void*> seen;
  for (const Layer& layer : layers)
    for (size_t i = 0; i < layer.modules().size(); ++i) {
      std::shared_ptr<torch::nn::Module> module = layer.modules()[i];
      if (!seen.insert(module.get()).second) continue;
      if (auto* const unbuilt = lazy(module)) module = building(layer, *unbuilt, [&] { return unbuilt->make(); });
      for (const auto& entry : module->named_modules(module_name(layer, i))) visit(entry.key(), *entry.value());
    }
}

std::vector<LayerFacts> facts_of(const std::vector<Layer>& layers, bool counts) {
  const KeptGenerators kept;
  std::vector<LayerFacts> all;
  for (const Layer& layer : layers) {
    LayerFacts facts{layer.name(), type_of(layer), 0};
    if (counts) {
      facts.parameters = trained_elements(layer.modules());
      for (const auto& module : layer.modules())
        if (auto* const unbuilt = lazy(module))
          facts.parameters += building(layer, *unbuilt, [&] { return trained_elements({unbuilt->make()}); });
    }
    all.push_back(std::move(facts));
  }
  return all;
}

std::vector<Layer> with_built_modules(const std::vector<Layer>& layers, const std::vector<size_t>& own,
                                      const pipe::Options& options) {
  KeptGenerators kept;
  const auto is_own = [&](const std::shared_ptr<torch::nn::Module>& module) {
    return std::any_of(own.begin(), own.end(), [&](size_t layer) { return uses(layers[layer], module); });
  };
  for (const Layer& layer : layers)
    for (const auto& module : layer.modules())
      if (const auto* const built = lazy(module); built && built->built())
        throw Error(
            ErrorCode::kOrder,
            formatted("the Lazy module of layer '{}' belongs to the engine of another pipe::Module", printable(layer.name())),
            "make the list of layers again, with new Lazy modules, for each engine");
  std::vector<Layer> all;
  for (size_t l = 0; l < layers.size(); ++l) {
    Layer::Modules modules;
    for (const auto& module : layers[l].modules()) {
      auto* const unbuilt = lazy(module);
      if (unbuilt && !unbuilt->built() && is_own(module)) {
        const auto seed = static_cast<uint64_t>(options.base_seed) + l;
        if (options.seed_fn)
          options.seed_fn(seed);
        else
          kept.seed_cpu(seed);
        building(layers[l], *unbuilt, [&] { unbuilt->build(); });
      }
      if (!unbuilt)
        modules.push_back(module);
      else if (unbuilt->built())
        modules.push_back(unbuilt->built());
    }
    all.emplace_back(layers[l].name(), std::move(modules), layers[l].takes(),
                     [layer = layers[l]](const Wire& wire) { return layer(wire); });
  }
  return all;
}

void release_built_modules(const std::vector<Layer>& layers) {
  for (const Layer& layer : layers)
    for (const auto& module : layer.modules())
      if (auto* const built = lazy(module)) built->release();
}

std::vector<int64_t> trained_by_stage(const std::vector<Layer>& own, const MeshGroups& mesh) {
  Layer::Modules modules;
  for (const Layer& layer : own) modules.insert(modules.end(), layer.modules().begin(), layer.modules().end());
  const int64_t mine = trained_elements(modules);
  if (!mesh.pipe()) return {mine};
  std::vector<int64_t> all(mesh.pipe_stages());
  mesh.pipe()->links().host.all_gather(&mine, all.data(), sizeof(mine));
  return all;
}

}  // namespace gannet::pipeline
