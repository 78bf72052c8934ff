/// Modules that gannet::initialize builds, for pipelines of models too large for any one process.
///
///   gannet::Lazy<torch::nn::Embedding> words(50257, 768);
///   std::vector<gannet::Layer> list{gannet::layer_of("wte", words)};
///   for (int i = 0; i < 12; ++i) list.push_back(gannet::layer<Block>("h." + std::to_string(i), config));
///   list.push_back(gannet::layer_of("head", words, [](torch::nn::EmbeddingImpl& words, const at::Tensor& x) {
///     return at::matmul(x, words.weight.t());
///   }));
///   auto engine = gannet::initialize(gannet::pipe::Module(list, {.num_stages = 4, .loss_fn = loss}), ...).engine;
///
/// Each rank builds the modules of its own stage. Their initial values depend on
/// pipe::Options::base_seed and on the number of the first layer that uses the module, and not on
/// the number of stages. The partition method "parameters" builds each module once more, one at a
/// time, to count its parameters.
#pragma once

#include <gannet/layers.h>
#include <gannet/module_of.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>

namespace gannet {

namespace detail {

// A placeholder in a Layer for a module that initialize builds.
class LazyModule : public torch::nn::Module {
 public:
  LazyModule(const std::type_info& type, std::function<std::shared_ptr<torch::nn::Module>()> make)
      : type_(type), make_(std::move(make)) {}
  const std::type_info& type() const { return type_; }
  std::shared_ptr<torch::nn::Module> make() const { return make_(); }
  const std::shared_ptr<torch::nn::Module>& built() const { return built_; }  // null: not built
  torch::nn::Module& require_built() const;                                   // throws Error(kOrder)
  void build() { built_ = make_(); }
  void release() { built_.reset(); }

 private:
  const std::type_info& type_;
  std::function<std::shared_ptr<torch::nn::Module>()> make_;
  std::shared_ptr<torch::nn::Module> built_;
};

}  // namespace detail

/// A module that initialize builds later. Holds copies of its constructor's arguments; `Module` is
/// the module's class or its holder. Copies of a Lazy refer to the same module, so its weights are
/// tied if layers of two stages use it.
template <class Module>
class Lazy {
 public:
  using Impl = typename detail::ModuleOf<Module>::type;
  template <class... Arguments>
    requires(std::is_constructible_v<Impl, const Arguments&...>)
  explicit Lazy(Arguments... arguments)
      : module_(std::make_shared<detail::LazyModule>(typeid(Impl),
                                                     [arguments...] { return std::make_shared<Impl>(arguments...); })) {}
  bool is_built() const { return module_->built() != nullptr; }
  /// Throws Error(kOrder) on a rank that has not built it.
  Impl& operator*() const { return static_cast<Impl&>(module_->require_built()); }
  Impl* operator->() const { return &**this; }
  /// For the modules of gannet::function(name, {words.ptr()}, ...).
  std::shared_ptr<torch::nn::Module> ptr() const { return module_; }

 private:
  std::shared_ptr<detail::LazyModule> module_;
};

/// Like layer_of() for a module that exists.
template <class Module>
Layer layer_of(std::string name, const Lazy<Module>& module) {
  using Signature = detail::SignatureOf<decltype(&Lazy<Module>::Impl::forward)>;
  const auto call = [module]<class... A>(A&&... arguments) -> decltype(module->forward(std::forward<A>(arguments)...)) {
    return module->forward(std::forward<A>(arguments)...);
  };
  return detail::layer<typename Signature::Result, typename Signature::List>(std::move(name), {module.ptr()}, call);
}
template <class Module, class How>
Layer layer_of(std::string name, const Lazy<Module>& module, How how) {
  using Signature = detail::SignatureOf<How>;
  using List = typename Signature::List;
  const auto call = [module,
                     how]<class... A>(A&&... arguments) -> decltype(std::invoke(how, *module, std::forward<A>(arguments)...)) {
    return std::invoke(how, *module, std::forward<A>(arguments)...);
  };
  if constexpr (std::is_member_function_pointer_v<How>)
    return detail::layer<typename Signature::Result, List>(std::move(name), {module.ptr()}, call);
  else
    return detail::layer<typename Signature::Result, typename detail::WithoutFirst<List>::type>(std::move(name), {module.ptr()},
                                                                                                call);
}

/// layer_of(name, Lazy<Module>(arguments...)).
template <class Module, class... Arguments>
Layer layer(std::string name, Arguments... arguments) {
  return layer_of(std::move(name), Lazy<Module>(std::move(arguments)...));
}

}  // namespace gannet
