/// Activation checkpointing: a part of the model, a region, keeps its inputs alone; what its backward needs is computed again
/// when backward comes to it. Memory for time: a region's forward runs twice.
///
///   torch::Tensor forward(torch::Tensor x) {
///     for (const auto& block : *blocks)
///       x = gannet::checkpointing::checkpoint([&block](torch::Tensor x) { return block->as<Block>()->forward(x); }, x);
///     return x;
///   }
///
/// Gradients are those of the plain call, bit for bit: dropout draws the same numbers again, and the statistics of a batch norm
/// move once. It needs no engine, and works under every ZeRO stage. Regions nest: an outer one then keeps less, and runs the
/// inner ones again. `create_graph`, several backwards through one graph, autograd::grad and regions whose inputs need no
/// gradient work as without.
///
/// What is computed again must be what was computed: a region reads its arguments and what it captures, which the program leaves
/// as they are until backward. A recomputation that saves other tensors than the forward did is an Error(kMismatch).
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace gannet::checkpointing {

struct Options {
  /// Of the region, in errors.
  std::string name = "";
  /// Random operators draw the same numbers again: the states of the default generators of the CPU and of the devices of the
  /// tensor arguments, and of generators among the arguments, are kept with the region (5 KB on the CPU). Without it a region
  /// that draws random numbers has wrong gradients.
  bool preserve_rng_state = true;
  /// The recomputation ends as soon as it has what backward needs. Without it the region runs to its end, as a region must whose
  /// code catches every exception (`catch (...)`).
  bool early_stop = true;
};

namespace detail {

// Calls f(tensor) for each tensor of a value: of a container of them too, and of a type that has for_each_tensor(f).
template <class T, class F>
void for_each_tensor(T& value, const F& f);

template <class T, class F>
concept HasTensors = requires(T& value, const F& f) { value.for_each_tensor(f); };

template <class T>
struct Parts {  // of a value that has none
  template <class F>
  static void each(T& value, const F& f) {
    if constexpr (HasTensors<T, F>) value.for_each_tensor(f);
  }
};
template <>
struct Parts<at::Tensor> {
  template <class F>
  static void each(at::Tensor& value, const F& f) {
    f(value);
  }
};
template <class T>
struct Parts<std::optional<T>> {
  template <class F>
  static void each(std::optional<T>& value, const F& f) {
    if (value) for_each_tensor(*value, f);
  }
};
template <class T, class Allocator>
struct Parts<std::vector<T, Allocator>> {
  template <class F>
  static void each(std::vector<T, Allocator>& value, const F& f) {
    if constexpr (!std::is_arithmetic_v<T>)
      for (auto& part : value) for_each_tensor(part, f);
  }
};
template <class T, size_t n>
struct Parts<std::array<T, n>> {
  template <class F>
  static void each(std::array<T, n>& value, const F& f) {
    for (auto& part : value) for_each_tensor(part, f);
  }
};
template <class Key, class T, class... Rest>
struct Parts<std::map<Key, T, Rest...>> {
  template <class F>
  static void each(std::map<Key, T, Rest...>& value, const F& f) {
    for (auto& [key, part] : value) for_each_tensor(part, f);
  }
};
template <class... Ts>
struct Parts<std::tuple<Ts...>> {
  template <class F>
  static void each(std::tuple<Ts...>& value, const F& f) {
    std::apply([&](auto&... parts) { (for_each_tensor(parts, f), ...); }, value);
  }
};
template <class A, class B>
struct Parts<std::pair<A, B>> {
  template <class F>
  static void each(std::pair<A, B>& value, const F& f) {
    for_each_tensor(value.first, f);
    for_each_tensor(value.second, f);
  }
};

template <class T, class F>
void for_each_tensor(T& value, const F& f) {
  Parts<T>::each(value, f);
}

// One call: the function and its arguments, whose tensors are kept elsewhere.
template <class Function, class... Args>
class Call {
 public:
  using Result = std::invoke_result_t<Function&, Args&...>;

  template <class F, class... As>
  explicit Call(F&& function, As&&... arguments)
      : function_(std::forward<F>(function)), arguments_(std::forward<As>(arguments)...) {
    for_each_tensor(arguments_, [&](at::Tensor& tensor) { tensors_.push_back(std::exchange(tensor, at::Tensor())); });
  }

  /// The arguments' tensors, once.
  std::vector<at::Tensor> take_tensors() { return std::move(tensors_); }
  std::vector<at::Generator> generators() const {
    std::vector<at::Generator> found;
    std::apply([&](const auto&... arguments) { (add(found, arguments), ...); }, arguments_);
    return found;
  }
  /// With these tensors. What the function writes into its own copies of the arguments is in no later call.
  Result operator()(const std::vector<at::Tensor>& tensors) {
    std::tuple<Args...> arguments = arguments_;
    size_t next = 0;
    for_each_tensor(arguments, [&](at::Tensor& tensor) { tensor = tensors[next++]; });
    return std::apply([this](auto&... each) -> Result { return std::invoke(function_, each...); }, arguments);
  }

 private:
  template <class T>
  static void add(std::vector<at::Generator>& found, const T& argument) {
    if constexpr (std::is_same_v<T, at::Generator>) {
      if (argument.defined()) found.push_back(argument);
    } else if constexpr (std::is_same_v<T, std::optional<at::Generator>>) {
      if (argument && argument->defined()) found.push_back(*argument);
    }
  }

  Function function_;
  std::tuple<Args...> arguments_;
  std::vector<at::Tensor> tensors_;
};

using Again = std::function<void(const std::vector<at::Tensor>&)>;

// Whether what runs here is recorded for a backward.
bool is_recorded();
// Runs `again` on the tensors with nothing kept but them, and keeps `again` for backward.
void run_region(const Options& options, const std::vector<at::Tensor>& tensors, std::vector<at::Generator> generators,
                const Again& forward, Again again);

}  // namespace detail

/// function(arguments...), as a region. Every tensor among the arguments, in vectors, optionals, arrays, maps, pairs and tuples
/// too, is an input of the region (a type of yours may offer them by a template member `for_each_tensor(f)`); all arguments are
/// copied, so pass a module by std::ref, or capture it. The function is copied too and called a second time in backward, on
/// whatever thread backward runs. Any result. Under torch::NoGradGuard it is a plain call.
///
/// Throws Error(kUnsupported) where the region changes one of its input tensors in place, and where another autograd engine than
/// LibTorch's is installed (a Python interpreter in the process). At backward: Error(kOrder) where an input was changed since,
/// Error(kMismatch) where the recomputation differs from the forward.
template <class Function, class... Args>
  requires(!std::is_same_v<std::decay_t<Function>, Options>)
auto checkpoint(const Options& options, Function&& function, Args&&... arguments) {
  using Call = detail::Call<std::decay_t<Function>, std::decay_t<Args>...>;
  using Result = typename Call::Result;
  const auto call = std::make_shared<Call>(std::forward<Function>(function), std::forward<Args>(arguments)...);
  const std::vector<at::Tensor> tensors = call->take_tensors();
  if (!detail::is_recorded()) return (*call)(tensors);
  const auto again = [call](const std::vector<at::Tensor>& inputs) { static_cast<void>((*call)(inputs)); };
  if constexpr (std::is_void_v<Result>) {
    detail::run_region(options, tensors, call->generators(), again, again);
  } else {
    std::optional<Result> result;
    detail::run_region(
        options, tensors, call->generators(), [&](const std::vector<at::Tensor>& inputs) { result.emplace((*call)(inputs)); },
        again);
    return Result(std::move(*result));
  }
}

template <class Function, class... Args>
  requires(!std::is_same_v<std::decay_t<Function>, Options>)
auto checkpoint(Function&& function, Args&&... arguments) {
  return checkpoint(Options(), std::forward<Function>(function), std::forward<Args>(arguments)...);
}

}  // namespace gannet::checkpointing
