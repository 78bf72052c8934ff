/// Activation checkpointing: a part of the model, called a region, keeps only its inputs. The
/// tensors that its backward needs are recomputed when backward reaches it. This trades time for
/// memory: a region's forward runs twice.
///
///   torch::Tensor forward(torch::Tensor x) {
///     for (const auto& block : *blocks)
///       x = gannet::checkpointing::checkpoint([&block](torch::Tensor x) { return block->as<Block>()->forward(x); }, x);
///     return x;
///   }
///
/// Gradients are those of the plain call, bit for bit: dropout draws the same numbers again, and
/// the statistics of a batch norm are updated once. No engine is needed, and every ZeRO stage
/// works. Regions can be nested: the outer one then keeps less, and recomputes the inner ones.
/// `create_graph`, several backwards through one graph, autograd::grad, and regions with inputs
/// that need no gradient work as without checkpointing.
///
/// The recomputation must repeat the forward: a region reads its arguments and its captures, which
/// the program must not change until backward. A recomputation that saves different tensors from
/// those of the forward is an Error(kMismatch).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>
#include <gannet/checkpointing_settings.h>
#include <gannet/rng_tracker.h>

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace gannet::checkpointing {

struct Options {
  /// Name of the region in errors.
  std::string name = "";
  /// Makes random operators draw the same numbers again: for the recomputation, the default
  /// generators of the CPU and of the tensor arguments' devices, and every generator that the
  /// region passes to an operator, are reset to their states at the forward. Without it, a region
  /// that draws random numbers has wrong gradients. Generators are shared by the process: if a
  /// thread draws from a default generator while another thread recomputes, both get different
  /// numbers.
  bool preserve_rng_state = true;
  /// Ends recomputation with an exception as soon as it has the tensors that backward needs. Code
  /// after that point, such as code that switches a module back to train() or decrements a counter,
  /// does not run, so use it only for functions without such code. With nested regions it avoids
  /// recomputing the last of them.
  bool early_stop = false;
  /// DeepSpeed's variant: the region is one node of the graph; its backward recomputes it with a
  /// separate graph and runs a backward inside. It also works if a different autograd engine is
  /// installed. Refused with Error(kUnsupported): autograd::grad and other backwards that request
  /// only some of the gradients, create_graph, a region without an input that requires a gradient,
  /// a result without tensors. Parameters that two such regions share get their gradients in two
  /// parts. `early_stop` is ignored.
  bool use_reentrant = false;
};

namespace detail {

// Calls f(tensor) for each tensor of a value, including those in containers and in types that have
// for_each_tensor(f).
template <class T, class F>
void for_each_tensor(T& value, const F& f);

template <class T, class F>
concept HasTensors = requires(T& value, const F& f) { value.for_each_tensor(f); };

template <class T>
struct Parts {  // the general case: a value without tensors, or a type with for_each_tensor(f)
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
template <class Key, class T, class... Rest>
struct Parts<std::unordered_map<Key, T, Rest...>> {
  template <class F>
  static void each(std::unordered_map<Key, T, Rest...>& value, const F& f) {
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

// The stored form of an argument: a copy; for views (ArrayRef, span, string_view), a copy of the
// values.
template <class T>
T stored(const T& value) {
  return value;
}
template <class T>
std::vector<T> stored(const c10::ArrayRef<T>& value) {
  return value.vec();
}
template <class T>
std::vector<std::remove_const_t<T>> stored(const std::span<T>& value) {
  return {value.begin(), value.end()};
}
inline std::string stored(const std::string_view& value) { return std::string(value); }

// A call that can be repeated: copies of the function and its arguments, without the arguments'
// tensors, which are kept elsewhere.
template <class Function, class... Args>
class Call {
 public:
  template <class F, class... As>
  explicit Call(F&& function, const As&... arguments) : function_(std::forward<F>(function)), arguments_(stored(arguments)...) {
    for_each_tensor(arguments_, [&](at::Tensor& tensor) { tensors_.push_back(std::exchange(tensor, at::Tensor())); });
  }
  /// The arguments' tensors; may be taken once.
  std::vector<at::Tensor> take_tensors() { return std::move(tensors_); }
  Function& function() { return function_; }

  /// Runs the call with these tensors. Changes that the function makes to itself or to its
  /// arguments do not affect later calls.
  void operator()(const std::vector<at::Tensor>& tensors) {
    std::tuple<Args...> arguments = arguments_;
    size_t next = 0;
    for_each_tensor(arguments, [&](at::Tensor& tensor) { tensor = tensors[next++]; });
    if constexpr (std::is_copy_constructible_v<Function>) {
      Function function = function_;
      static_cast<void>(call(function, arguments));
    } else {
      static_cast<void>(call(function_, arguments));
    }
  }
  /// Runs the call in the same way, and returns the result's tensors.
  std::vector<at::Tensor> outputs(const std::vector<at::Tensor>& tensors) {
    std::tuple<Args...> arguments = arguments_;
    size_t next = 0;
    for_each_tensor(arguments, [&](at::Tensor& tensor) { tensor = tensors[next++]; });
    std::vector<at::Tensor> all;
    const auto collect = [&](auto result) { for_each_tensor(result, [&](at::Tensor& tensor) { all.push_back(tensor); }); };
    if constexpr (std::is_copy_constructible_v<Function>) {
      Function function = function_;
      collect(call(function, arguments));
    } else {
      collect(call(function_, arguments));
    }
    return all;
  }

 private:
  static decltype(auto) call(Function& function, std::tuple<Args...>& arguments) {
    return std::apply(
        [&](Args&... each) -> decltype(auto) {
          if constexpr (std::is_invocable_v<Function&, Args&...>)
            return std::invoke(function, each...);
          else
            return std::invoke(function, std::move(each)...);
        },
        arguments);
  }

  Function function_;
  std::tuple<Args...> arguments_;
  std::vector<at::Tensor> tensors_;
};

using Again = std::function<void(const std::vector<at::Tensor>&)>;
using AgainWithOutputs = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;
using ForwardWithOutputs = std::function<std::vector<at::Tensor*>()>;

// Whether operators that run now are recorded for a backward.
bool is_recorded();
// Runs `forward`. Keeps only the tensors and, for backward, `again`, which makes the same call on
// other tensors.
void run_region(const Options& options, const std::vector<at::Tensor>& tensors, const std::function<void()>& forward,
                Again again);
// Does the same with the region as one node of the graph. `forward` returns pointers to the tensors
// of its results, which become the node's outputs.
void run_reentrant(const Options& options, const std::vector<at::Tensor>& tensors, const ForwardWithOutputs& forward,
                   AgainWithOutputs again);
// Throws Error(kUnsupported), since backward could not reach a region without a result.
[[noreturn]] void refuse_reentrant_without_result(const Options& options);

}  // namespace detail

/// Runs function(arguments...) as a region. Every tensor among the arguments, including those in
/// vectors, optionals, arrays, maps, pairs and tuples, is an input of the region (your own type may
/// offer its tensors via a template member `for_each_tensor(f)`). Function and arguments are copied
/// for the recomputation, which runs on the thread that runs backward: pass a module by std::ref,
/// or capture it. Objects that are captured or passed by reference must outlive backward and stay
/// unchanged. The result may have any type, and is returned by value. Under torch::NoGradGuard it
/// is a plain call.
///
/// Throws Error(kUnsupported) if the region changes one of its input tensors in place, or if an
/// autograd engine other than LibTorch's is installed (a Python interpreter in the process). At
/// backward: Error(kOrder) if a tensor that the region reads was changed in place after the
/// forward, Error(kMismatch) if the recomputation differs from the forward.
template <class Function, class... Args>
  requires(!std::is_same_v<std::decay_t<Function>, Options>)
auto checkpoint(const Options& options, Function&& function, Args&&... arguments) {
  static_assert((std::is_copy_constructible_v<std::decay_t<Args>> && ...),
                "the arguments of a region are kept until backward: each must be copyable (capture what is not)");
  using Again = detail::Call<std::decay_t<Function>, decltype(detail::stored(std::as_const(arguments)))...>;
  // The function is called as it was passed or, if that is impossible (a const module), as a copy.
  constexpr bool kIsCalled = std::is_invocable_v<Function, Args...>,
                 kCopies = std::is_copy_constructible_v<std::decay_t<Function>>;
  using Result = std::decay_t<std::invoke_result_t<std::conditional_t<kIsCalled, Function, std::decay_t<Function>&>, Args...>>;
  const auto direct = [&]() -> Result {
    if constexpr (kIsCalled) {
      return std::invoke(std::forward<Function>(function), std::forward<Args>(arguments)...);
    } else {
      std::decay_t<Function> own = function;
      return std::invoke(own, std::forward<Args>(arguments)...);
    }
  };
  if (!detail::is_recorded()) return direct();
  const auto again = [&] {
    if constexpr (kCopies)
      return std::make_shared<Again>(std::as_const(function), arguments...);
    else
      return std::make_shared<Again>(std::forward<Function>(function), arguments...);
  }();
  const auto call = [&]() -> Result {
    if constexpr (kCopies)
      return direct();
    else
      return std::invoke(again->function(), std::forward<Args>(arguments)...);
  };
  const auto recompute = [again](const std::vector<at::Tensor>& inputs) { (*again)(inputs); };
  const std::vector<at::Tensor> tensors = again->take_tensors();
  if (options.use_reentrant) {
    if constexpr (std::is_void_v<Result>) {
      detail::refuse_reentrant_without_result(options);
    } else {
      std::optional<Result> result;
      detail::run_reentrant(
          options, tensors,
          [&] {
            result.emplace(call());
            std::vector<at::Tensor*> outputs;
            detail::for_each_tensor(*result, [&](at::Tensor& tensor) { outputs.push_back(&tensor); });
            return outputs;
          },
          [again](const std::vector<at::Tensor>& inputs) { return again->outputs(inputs); });
      return Result(std::move(*result));
    }
  }
  if constexpr (std::is_void_v<Result>) {
    detail::run_region(options, tensors, call, recompute);
  } else {
    std::optional<Result> result;
    detail::run_region(options, tensors, [&] { result.emplace(call()); }, recompute);
    return Result(std::move(*result));
  }
}

template <class Function, class... Args>
  requires(!std::is_same_v<std::decay_t<Function>, Options>)
auto checkpoint(Function&& function, Args&&... arguments) {
  return checkpoint(Options(), std::forward<Function>(function), std::forward<Args>(arguments)...);
}

}  // namespace gannet::checkpointing
