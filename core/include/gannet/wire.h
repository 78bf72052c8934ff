/// Converts a value of tensors to a flat list, the wire, and back. A value is a tensor, an optional
/// one (nullopt is an undefined tensor), a vector of tensors, or a tuple, pair or array of such
/// values. Layers (gannet/layers.h) pass their results this way.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace gannet {

using Wire = std::vector<at::Tensor>;

namespace detail {

// Describes the tensors of a value of type T, in order: their minimum number, whether the type
// takes any number above that, and both conversions.
template <class T>
struct OnWire;
template <class T>
concept Wired = requires { OnWire<T>::kLeast; };

template <>
struct OnWire<at::Tensor> {
  static constexpr size_t kLeast = 1;
  static constexpr bool kIsOpen = false;
  static at::Tensor take(const Wire& wire, size_t& next) { return wire[next++]; }
  static void give(Wire& wire, const at::Tensor& value) { wire.push_back(value); }
};
template <>
struct OnWire<std::optional<at::Tensor>> {  // nullopt is an undefined tensor
  static constexpr size_t kLeast = 1;
  static constexpr bool kIsOpen = false;
  static std::optional<at::Tensor> take(const Wire& wire, size_t& next) {
    const at::Tensor& tensor = wire[next++];
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  }
  static void give(Wire& wire, const std::optional<at::Tensor>& value) { wire.push_back(value.value_or(at::Tensor())); }
};
template <>
struct OnWire<Wire> {
  static constexpr size_t kLeast = 0;
  static constexpr bool kIsOpen = true;
  static Wire take(const Wire& wire, size_t& next) {
    return Wire(wire.begin() + static_cast<std::ptrdiff_t>(std::exchange(next, wire.size())), wire.end());
  }
  static void give(Wire& wire, const Wire& value) { wire.insert(wire.end(), value.begin(), value.end()); }
};

// Only the last type may take any number of tensors, since its end could not be determined
// otherwise.
template <class... Ts>
constexpr bool is_open_at_its_end_alone() {
  [[maybe_unused]] size_t left = sizeof...(Ts);
  return ((--left == 0 || !OnWire<Ts>::kIsOpen) && ...);
}
template <class... Ts>
concept AllWired = (Wired<Ts> && ...) && is_open_at_its_end_alone<Ts...>();

template <class... Ts>
  requires AllWired<Ts...>
struct OnWire<std::tuple<Ts...>> {
  static constexpr size_t kLeast = (size_t{0} + ... + OnWire<Ts>::kLeast);
  static constexpr bool kIsOpen = (false || ... || OnWire<Ts>::kIsOpen);
  static std::tuple<Ts...> take(const Wire& wire, size_t& next) { return std::tuple<Ts...>{OnWire<Ts>::take(wire, next)...}; }
  static void give(Wire& wire, const std::tuple<Ts...>& value) {
    std::apply([&](const Ts&... parts) { (OnWire<Ts>::give(wire, parts), ...); }, value);
  }
};
template <class A, class B>
  requires AllWired<A, B>
struct OnWire<std::pair<A, B>> {
  static constexpr size_t kLeast = OnWire<A>::kLeast + OnWire<B>::kLeast;
  static constexpr bool kIsOpen = OnWire<B>::kIsOpen;
  static std::pair<A, B> take(const Wire& wire, size_t& next) {
    return std::pair<A, B>{OnWire<A>::take(wire, next), OnWire<B>::take(wire, next)};
  }
  static void give(Wire& wire, const std::pair<A, B>& value) {
    OnWire<A>::give(wire, value.first);
    OnWire<B>::give(wire, value.second);
  }
};
template <class T, size_t n>
  requires(Wired<T> && !OnWire<T>::kIsOpen)
struct OnWire<std::array<T, n>> {
  static constexpr size_t kLeast = n * OnWire<T>::kLeast;
  static constexpr bool kIsOpen = false;
  static std::array<T, n> take(const Wire& wire, size_t& next) {
    std::array<T, n> value;
    for (T& part : value) part = OnWire<T>::take(wire, next);
    return value;
  }
  static void give(Wire& wire, const std::array<T, n>& value) {
    for (const T& part : value) OnWire<T>::give(wire, part);
  }
};

}  // namespace detail

}  // namespace gannet
