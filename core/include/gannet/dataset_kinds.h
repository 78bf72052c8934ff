/// Determines from a type's members what kind of dataset it is: samples by index, a range, a
/// torch::data dataset, or a stream with a state. Part of dataset.h, which lists the kinds.
#pragma once

#include <gannet/value.h>

#include <concepts>
#include <cstddef>
#include <iterator>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

namespace gannet {

template <class Stream>
struct Batched;
template <class Sample>
class SampleQueue;

namespace loading {

template <class T>
struct Unwrapped {
  using type = T;
};
template <class T>
struct Unwrapped<std::optional<T>> {
  using type = T;
};
template <class T>
struct VectorElement {};
template <class T, class A>
struct VectorElement<std::vector<T, A>> {
  using type = T;
};
template <class T>
struct IsSharedPtr : std::false_type {};
template <class T>
struct IsSharedPtr<std::shared_ptr<T>> : std::true_type {};
template <class T>
struct IsQueue : std::false_type {};
template <class T>
struct IsQueue<SampleQueue<T>> : std::true_type {};
template <class T>
struct IsQueue<std::shared_ptr<SampleQueue<T>>> : std::true_type {};
template <class T>
struct IsBatched : std::false_type {};
template <class T>
struct IsBatched<Batched<T>> : std::true_type {};
template <class T>
struct MemberClass {};
template <class C, class R>
struct MemberClass<R C::*> {
  using type = C;
};

template <class D>
concept TorchDataset = requires {
  typename D::BatchType;
  typename D::BatchRequestType;
};
template <class D>
concept MapStyle = requires(D& dataset, size_t index) {
  dataset.size();
  dataset.get(index);
};
template <class D>
concept RandomAccess = requires(D& dataset) {
  { dataset.begin() } -> std::random_access_iterator;
  dataset.end();
};
template <class D>
concept Range = requires(D& dataset) {
  dataset.begin() != dataset.end();
  *dataset.begin();
};
// A stream that can report its position and seek to one.
template <class T>
concept HasCursor = requires(T& stream, const T& as_const, const Value& where) {
  { as_const.cursor() } -> std::convertible_to<Value>;
  stream.seek(where);
};
// A torch Dataset that does not override get_batch. It is read sample by sample, so that an error
// can name the sample that failed.
template <class D>
constexpr bool reads_singly() {
  if constexpr (requires {
                  typename D::ExampleType;
                  typename MemberClass<decltype(&D::get_batch)>::type;
                })
    return MapStyle<D> && !std::same_as<typename MemberClass<decltype(&D::get_batch)>::type, D>;
  else
    return false;
}
template <class D>
concept ReadsSingly = reads_singly<D>();

}  // namespace loading

}  // namespace gannet
