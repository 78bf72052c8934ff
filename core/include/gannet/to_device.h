/// Moves every tensor inside a batch, however it is nested, to a device.
///
///   std::map<std::string, std::vector<at::Tensor>> batch = ...;
///   batch = gannet::to_device(std::move(batch), at::Device(at::kCUDA, 0));
///
/// It handles at::Tensor, and looks into std::vector, array, list and deque; std::pair and tuple;
/// std::map and unordered_map (the values); std::optional; anything with a member `data` (and
/// `target`), such as torch::data::Example. Your own type takes part if it has `T to(at::Device)
/// const`. Everything else (numbers, strings, other structs) passes unchanged. A tensor that is
/// already on the device is not copied; a copy from pinned memory does not block the caller.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace gannet {

namespace loading {

template <class T>
concept Movable = !std::same_as<T, at::Tensor> && requires(const T& value, at::Device device) {
  { value.to(device) } -> std::convertible_to<T>;
};
template <class T>
concept Container = requires(T& value) {
  typename T::value_type;
  { *value.begin() } -> std::same_as<typename T::value_type&>;  // not std::vector<bool>, not a set
};
template <class T>
concept Mapping = requires(T& value) {
  typename T::mapped_type;
  { value.begin()->second } -> std::same_as<typename T::mapped_type&>;
};
template <class T>
concept TupleLike = requires { typename std::tuple_size<T>::type; };
template <class T>
concept HasData = std::is_class_v<T> && requires(T& value) { &(value.data); };
template <class T>
concept HasTarget = HasData<T> && requires(T& value) { &(value.target); };

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

// Calls on_tensor for every tensor and on_movable for every object with its own to(). Returns
// whether the type can hold any of these. That is known at compile time, so that a vector of a
// million integers is not walked.
template <class T, class OnTensor, class OnMovable>
constexpr bool walk(T& value, const OnTensor& on_tensor, const OnMovable& on_movable);

template <class T>
constexpr bool carries_tensors() {
  if constexpr (std::same_as<T, at::Tensor> || Movable<T>) {
    return true;
  } else if constexpr (Mapping<T>) {
    return carries_tensors<typename T::mapped_type>();
  } else if constexpr (Container<T> || IsOptional<T>::value) {
    return carries_tensors<typename T::value_type>();
  } else if constexpr (TupleLike<T>) {
    return []<std::size_t... I>(std::index_sequence<I...>) {
      return (carries_tensors<std::tuple_element_t<I, T>>() || ...);
    }(std::make_index_sequence<std::tuple_size_v<T>>());
  } else if constexpr (HasTarget<T>) {
    return carries_tensors<decltype(T::data)>() || carries_tensors<decltype(T::target)>();
  } else if constexpr (HasData<T>) {
    return carries_tensors<decltype(T::data)>();
  } else {
    return false;
  }
}

template <class T, class OnTensor, class OnMovable>
constexpr bool walk(T& value, const OnTensor& on_tensor, const OnMovable& on_movable) {
  if constexpr (!carries_tensors<T>()) {
    return false;
  } else if constexpr (std::same_as<T, at::Tensor>) {
    on_tensor(value);
  } else if constexpr (Movable<T>) {
    on_movable(value);
  } else if constexpr (Mapping<T>) {
    for (auto& entry : value) walk(entry.second, on_tensor, on_movable);
  } else if constexpr (Container<T>) {
    for (auto& element : value) walk(element, on_tensor, on_movable);
  } else if constexpr (IsOptional<T>::value) {
    if (value) walk(*value, on_tensor, on_movable);
  } else if constexpr (TupleLike<T>) {
    std::apply([&](auto&... members) { (walk(members, on_tensor, on_movable), ...); }, value);
  } else {
    walk(value.data, on_tensor, on_movable);
    if constexpr (HasTarget<T>) walk(value.target, on_tensor, on_movable);
  }
  return true;
}

}  // namespace loading

/// An undefined tensor stays undefined.
at::Tensor to_device(const at::Tensor& tensor, at::Device device);

template <class Batch>
Batch to_device(Batch batch, at::Device device) {
  loading::walk(
      batch, [&](at::Tensor& tensor) { tensor = to_device(static_cast<const at::Tensor&>(tensor), device); },
      [&](auto& object) { object = object.to(device); });
  return batch;
}

}  // namespace gannet
