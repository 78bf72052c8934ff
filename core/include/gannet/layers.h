/// Divides a model into a list of layers that run one after another. With activation checkpointing
/// on, run_layers makes regions of them.
///
///   struct NetImpl : torch::nn::Module {
///     std::vector<gannet::Layer> layers() {
///       std::vector<gannet::Layer> list{gannet::layer_of("words", words)};
///       for (size_t i = 0; i < blocks.size(); ++i) list.push_back(gannet::layer_of("blocks." + std::to_string(i), blocks[i]));
///       const auto head = [this](at::Tensor x) { return at::matmul(x, words->weight.t()); };
///       list.push_back(gannet::function("head", {words.ptr()}, head));
///       return list;
///     }
///     at::Tensor forward(at::Tensor ids) { return gannet::run_layers(layers(), ids); }
///   };
///
/// Only tensors pass from one layer to the next: a tensor, several, tuples, pairs, arrays,
/// optionals and vectors of them. Between layers they are a flat list, the wire: a layer that
/// returns {x, mask} fits one that takes (x, mask) or a tuple of two. Values that are not tensors
/// (a number, a flag) are captured by the layer's function. A module may be in the list twice, and
/// in two layers.
#pragma once

#include <ATen/core/Tensor.h>
#include <gannet/wire.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
class SequentialImpl;
}  // namespace torch::nn

namespace gannet {

/// A part of the model that is run as a whole. Copies of a Layer share its modules.
class Layer {
 public:
  using Modules = std::vector<std::shared_ptr<torch::nn::Module>>;
  /// The tensor counts that a layer accepts.
  struct Takes {
    std::vector<size_t> numbers = {};  ///< in ascending order; empty: not known before the call
    bool is_open = false;              ///< also any number above the last one
    bool has(size_t count) const;
    std::string to_string() const;  ///< "1 or 2 tensors"
  };

  Layer(std::string name, Modules modules, Takes takes, std::function<Wire(const Wire&)> call);

  /// Name in errors, profiles and traces; by convention the module's name in the state dict.
  const std::string& name() const { return name_; }
  /// The modules whose parameters the layer uses; the layer of a function may have none, or
  /// several.
  const Modules& modules() const { return modules_; }
  std::shared_ptr<torch::nn::Module> module() const { return modules_.empty() ? nullptr : modules_.front(); }
  const Takes& takes() const { return takes_; }
  /// Throws Error(kArgument) if the layer does not take that many tensors.
  Wire operator()(const Wire& inputs) const;

 private:
  std::string name_;
  Modules modules_;
  Takes takes_;
  std::function<Wire(const Wire&)> call_;
};

namespace detail {

// The result type and parameter types of a function, a member function (not counting the object),
// or a function object with a single operator().
template <class R, class... A>
struct Parameters {
  using Result = R;
  using List = std::tuple<std::type_identity<A>...>;
};
template <class F>
struct SignatureOf : SignatureOf<decltype(&F::operator())> {};
template <class R, class... A>
struct SignatureOf<R (*)(A...)> : Parameters<R, A...> {};
template <class R, class C, class... A>
struct SignatureOf<R (C::*)(A...)> : Parameters<R, A...> {};
template <class R, class C, class... A>
struct SignatureOf<R (C::*)(A...) const> : Parameters<R, A...> {};
template <class R, class... A>
struct SignatureOf<R (*)(A...) noexcept> : Parameters<R, A...> {};
template <class R, class C, class... A>
struct SignatureOf<R (C::*)(A...) noexcept> : Parameters<R, A...> {};
template <class R, class C, class... A>
struct SignatureOf<R (C::*)(A...) const noexcept> : Parameters<R, A...> {};

// Calls a function with the tensors of a wire. The function has the parameters of `List`, or only
// the first of them if the others have default arguments.
template <class Function, class Result, class List>
struct CallByWire;
template <class Function, class Result, class... A>
struct CallByWire<Function, Result, std::tuple<std::type_identity<A>...>> {
  template <size_t... i>
  static constexpr bool may_have(std::index_sequence<i...>) {
    using All = std::tuple<std::type_identity<A>...>;
    if constexpr (AllWired<std::decay_t<typename std::tuple_element_t<i, All>::type>...>)
      return std::is_invocable_v<const Function&, typename std::tuple_element_t<i, All>::type...>;
    else
      return false;
  }
  template <size_t count>
  static constexpr bool may_have_first() {
    return (count > 0 || sizeof...(A) == 0) && may_have(std::make_index_sequence<count>());
  }
  template <size_t... i>
  static constexpr bool has_any(std::index_sequence<i...>) {
    return (may_have_first<i>() || ...);
  }
  static constexpr auto kCounts = std::make_index_sequence<sizeof...(A) + 1>();
  static_assert(Wired<std::decay_t<Result>>,
                "a layer returns tensors: a tensor, or tuples, pairs, arrays, optionals and vectors of them");
  static_assert(has_any(kCounts),
                "a layer takes tensors (tuples, pairs, arrays, optionals of them, and as its last parameter a vector); what "
                "else its function needs, a lambda around it captures");

  template <size_t... i>
  static auto with(std::index_sequence<i...>) {
    return std::type_identity<std::tuple<std::decay_t<std::tuple_element_t<i, std::tuple<std::decay_t<A>...>>>...>>();
  }
  template <size_t count>
  static void add(Layer::Takes& takes) {
    if constexpr (may_have_first<count>()) {
      using Arguments = typename decltype(with(std::make_index_sequence<count>()))::type;
      if (takes.numbers.empty() || takes.numbers.back() != OnWire<Arguments>::kLeast)
        takes.numbers.push_back(OnWire<Arguments>::kLeast);
      takes.is_open = OnWire<Arguments>::kIsOpen;
    }
  }
  static Layer::Takes takes() {
    Layer::Takes all;
    [&]<size_t... i>(std::index_sequence<i...>) { (add<i>(all), ...); }(kCounts);
    return all;
  }

  template <size_t... i, class Arguments>
  static Wire call(std::index_sequence<i...>, const Function& function, Arguments& arguments) {
    using All = std::tuple<std::type_identity<A>...>;
    Wire results;
    OnWire<std::decay_t<Result>>::give(
        results, std::invoke(function, static_cast<typename std::tuple_element_t<i, All>::type&&>(std::get<i>(arguments))...));
    return results;
  }
  template <size_t count>
  static bool try_with(const Function& function, const Wire& wire, Wire& results) {
    if constexpr (may_have_first<count>()) {
      using Arguments = typename decltype(with(std::make_index_sequence<count>()))::type;
      using On = OnWire<Arguments>;
      if (On::kIsOpen ? wire.size() < On::kLeast : wire.size() != On::kLeast) return false;
      size_t next = 0;
      Arguments arguments = On::take(wire, next);
      results = call(std::make_index_sequence<count>(), function, arguments);
      return true;
    } else {
      return false;
    }
  }
  static Wire run(const Function& function, const Wire& wire) {
    Wire results;
    [&]<size_t... i>(std::index_sequence<i...>) { static_cast<void>((try_with<i>(function, wire, results) || ...)); }(kCounts);
    return results;
  }
};

template <class List>
struct WithoutFirst;
template <class First, class... Rest>
struct WithoutFirst<std::tuple<First, Rest...>> {
  using type = std::tuple<Rest...>;
};

template <class Result, class List, class Function>
Layer layer(std::string name, Layer::Modules modules, Function function) {
  using Call = CallByWire<Function, Result, List>;
  return Layer(std::move(name), std::move(modules), Call::takes(),
               [function = std::move(function)](const Wire& wire) { return Call::run(function, wire); });
}

template <class M>
std::shared_ptr<M> pointer_to(const std::shared_ptr<M>& module) {
  return module;
}
template <class Holder>
auto pointer_to(const Holder& holder) -> decltype(holder.ptr()) {
  return holder.ptr();
}

Wire run_layers(const std::vector<Layer>& layers, Wire wire);
// Whether run_layers would make regions of these layers, or measure them. Where it would not, a model that is not made of layers
// may run as a whole.
bool has_regions(const std::vector<Layer>& layers);
// Throws Error(kArgument) if the last layer did not return `least` tensors (or at least as many, if
// is_open).
void check_results(const std::vector<Layer>& layers, size_t found, size_t least, bool is_open);

}  // namespace detail

/// A layer that calls a module's forward. The parameters are deduced: tensors, or tuples and other
/// aggregates of tensors. Trailing parameters with default arguments may be left out, so that
/// TransformerEncoderLayer takes 1, 2 or 3 tensors.
template <class Module>
Layer layer_of(std::string name, const Module& module) {
  const auto pointer = detail::pointer_to(module);
  using M = typename std::decay_t<decltype(pointer)>::element_type;
  using Signature = detail::SignatureOf<decltype(&M::forward)>;
  const auto call = [pointer]<class... A>(A&&... arguments) -> decltype(pointer->forward(std::forward<A>(arguments)...)) {
    return pointer->forward(std::forward<A>(arguments)...);
  };
  return detail::layer<typename Signature::Result, typename Signature::List>(std::move(name), {pointer}, call);
}

/// A layer that calls another member function, or a function that takes the module as its first
/// argument. Use it if forward is overloaded, or does not take only tensors.
///   gannet::layer_of("encoder", encoder, &EncoderImpl::encode)
///   gannet::layer_of("h.3", block, [causal](BlockImpl& block, at::Tensor x) { return block.forward(x, causal); })
template <class Module, class How>
Layer layer_of(std::string name, const Module& module, How how) {
  const auto pointer = detail::pointer_to(module);
  using Signature = detail::SignatureOf<How>;
  const auto call = [pointer,
                     how]<class... A>(A&&... arguments) -> decltype(std::invoke(how, *pointer, std::forward<A>(arguments)...)) {
    return std::invoke(how, *pointer, std::forward<A>(arguments)...);
  };
  if constexpr (std::is_member_function_pointer_v<How>)
    return detail::layer<typename Signature::Result, typename Signature::List>(std::move(name), {pointer}, call);
  else
    return detail::layer<typename Signature::Result, typename detail::WithoutFirst<typename Signature::List>::type>(
        std::move(name), {pointer}, call);
}

/// A layer from a function of tensors; its parameter types must be written out (no `auto`).
/// Anything that it captures by reference, including `this`, must live until backward.
template <class Function>
Layer function(std::string name, Function function) {
  using Signature = detail::SignatureOf<std::decay_t<Function>>;
  return detail::layer<typename Signature::Result, typename Signature::List>(std::move(name), {}, std::move(function));
}
/// A layer from a function that uses parameters of these modules, such as an output layer that is
/// tied to the embeddings.
template <class Function>
Layer function(std::string name, Layer::Modules modules, Function function) {
  using Signature = detail::SignatureOf<std::decay_t<Function>>;
  return detail::layer<typename Signature::Result, typename Signature::List>(std::move(name), std::move(modules),
                                                                             std::move(function));
}

/// Returns the modules of a Sequential as layers, named as in its state dict: "0", "1", ... With
/// `prefix` "features" they are named "features.0", ... If one of the modules returns something
/// other than tensors, calling its layer throws Error(kUnsupported), which names the type.
std::vector<Layer> layers_of(const std::shared_ptr<torch::nn::SequentialImpl>& sequential, const std::string& prefix = "");
template <class Holder>
auto layers_of(const Holder& sequential, const std::string& prefix = "") -> decltype(layers_of(sequential.ptr(), prefix)) {
  return layers_of(sequential.ptr(), prefix);
}

/// Runs the layers one after another and returns the result of the last one: a tensor, unless a
/// different type is named.
///   at::Tensor y = gannet::run_layers(layers(), ids);
///   auto [y, mask] = gannet::run_layers<std::tuple<at::Tensor, at::Tensor>>(layers(), x, mask);
/// If their parameters belong to an engine with activation checkpointing on (docs/activation.md),
/// groups of layers become regions of checkpointing::checkpoint. Without checkpointing, under
/// torch::NoGradGuard and inside a region, the layers are called directly. The results are bitwise
/// equal either way. Throws Error(kArgument) if a layer does not take the number of tensors that
/// the layer before it returned.
template <class Result = at::Tensor, class... Inputs>
Result run_layers(const std::vector<Layer>& layers, const Inputs&... inputs) {
  static_assert((detail::Wired<Inputs> && ...), "run_layers passes tensors, and tuples, pairs, arrays and vectors of them");
  static_assert(detail::Wired<Result>, "run_layers returns a tensor, or a tuple, pair, array or vector of tensors");
  Wire wire;
  (detail::OnWire<Inputs>::give(wire, inputs), ...);
  wire = detail::run_layers(layers, std::move(wire));
  using On = detail::OnWire<Result>;
  detail::check_results(layers, wire.size(), On::kLeast, On::kIsOpen);
  size_t next = 0;
  return On::take(wire, next);
}

}  // namespace gannet
