/// Erases the types of any dataset and any collate function, so that the loader itself is compiled
/// once, in the core. This header is part of dataset.h, which lists the possible datasets and
/// collate functions.
///
/// make_source inspects a dataset's members and fills a Source: random access (`read`) or a stream
/// (`open`). make_collator does the same for a collate function. Both record the types of samples
/// and batches, and the loader refuses a dataset and a collate function that do not match.
#pragma once

#include <ATen/core/Tensor.h>
#include <gannet/dataset_kinds.h>
#include <gannet/to_device.h>
#include <gannet/value.h>

#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

namespace gannet {

namespace loading {

using Any = std::shared_ptr<void>;
using Indices = std::span<const size_t>;

/// One epoch of a stream, read by one thread at a time.
struct Reading {
  std::function<Any(size_t count)> next;   ///< returns up to `count` samples; null at the end
  std::function<bool()> over;              ///< whether the last next() already reached the end, whatever it returned
  std::function<Value()> cursor;           ///< null: the stream has no state
  std::function<void(const Value&)> seek;  ///< called before the first next(); null: none, or see Source::seek
};

/// A dataset with its types erased. An item is a vector of samples or, if `sample` is null, a
/// batch.
struct Source {
  std::function<std::optional<size_t>()> size;        ///< null: a stream; nullopt: the dataset has no size
  std::function<Any(Indices)> read;                   ///< random access; null in a stream
  std::function<Reading()> open;                      ///< stream: called once per epoch
  bool has_cursor = false;                            ///< stream: its Readings have a cursor
  std::function<Value()> cursor;                      ///< only for a stream with a state that outlives an epoch; else null
  std::function<void(const Value&)> seek;             ///< null if `cursor` is null
  std::function<void(bool on)> interrupt;             ///< while it is on, a waiting next() throws; null: nothing waits
  std::function<Any(void* samples)> default_collate;  ///< null: these types of sample and batch have none
  std::function<size_t(const void* samples)> count;   ///< the number of samples that an item holds
  const std::type_info* sample = nullptr;
  const std::type_info* batch = nullptr;
};

struct Collator {
  std::function<Any(void* samples)> call;
  const std::type_info* sample = nullptr;
};

/// Stacks tensors of one shape along a new first dimension. Throws Error(kArgument), which names
/// `member` and the shapes, if shapes differ.
at::Tensor stack(const std::vector<at::Tensor>& tensors, const char* member);

/// Call it in a catch block: rethrows the current exception as an Error that names these
/// samples, with the cause nested inside.
[[noreturn]] void rethrow_with_samples(Indices samples);

template <class Sample, class Batch>
constexpr bool stacks() {
  if constexpr (std::same_as<Sample, at::Tensor>) {
    return std::same_as<Batch, at::Tensor>;
  } else if constexpr (HasTarget<Sample>) {
    return std::same_as<decltype(Sample::data), at::Tensor> && std::same_as<decltype(Sample::target), at::Tensor> &&
           requires(at::Tensor tensor) { Batch{tensor, tensor}; };
  } else if constexpr (HasData<Sample>) {
    return std::same_as<decltype(Sample::data), at::Tensor> && requires(at::Tensor tensor) { Batch{tensor}; };
  } else {
    return false;
  }
}

template <class Sample, class Batch>
Any stack_samples(void* erased) {
  const auto& samples = *static_cast<std::vector<Sample>*>(erased);
  if constexpr (std::same_as<Sample, at::Tensor>) {
    return std::make_shared<Batch>(stack(samples, "the sample"));
  } else {
    std::vector<at::Tensor> parts;
    for (const Sample& sample : samples) parts.push_back(sample.data);
    at::Tensor data = stack(parts, "data");
    if constexpr (HasTarget<Sample>) {
      parts.clear();
      for (const Sample& sample : samples) parts.push_back(sample.target);
      return std::make_shared<Batch>(Batch{std::move(data), stack(parts, "target")});
    } else {
      return std::make_shared<Batch>(Batch{std::move(data)});
    }
  }
}

template <class Sample, class Batch>
void describe_samples(Source& source) {
  source.sample = &typeid(Sample);
  source.count = [](const void* samples) { return static_cast<const std::vector<Sample>*>(samples)->size(); };
  if constexpr (stacks<Sample, Batch>()) source.default_collate = &stack_samples<Sample, Batch>;
}

// Fills `read` with a function that calls get(index) -> Sample for each index. If a call fails, the
// error names the sample.
template <class Batch, class Get>
void read_singly(Source& source, Get get) {
  using Sample = std::remove_cvref_t<std::invoke_result_t<Get&, size_t>>;
  describe_samples<Sample, Batch>(source);
  source.read = [get](Indices indices) -> Any {
    auto samples = std::make_shared<std::vector<Sample>>();
    samples->reserve(indices.size());
    for (const size_t index : indices) {
      try {
        samples->push_back(get(index));
      } catch (...) {
        rethrow_with_samples(Indices(&index, 1));
      }
    }
    return samples;
  };
}

template <class Batch, class D>
void read_torch(Source& source, const std::shared_ptr<D>& dataset) {
  using Request = typename D::BatchRequestType;
  using Item = typename Unwrapped<typename D::BatchType>::type;
  constexpr bool kReady = std::same_as<Item, Batch>;
  static_assert(
      kReady || requires { typename VectorElement<Item>::type; },
      "this torch dataset gives batches of another type than the loader's: name it, as in gannet::Dataset<YourBatch>");
  if constexpr (!kReady) describe_samples<typename VectorElement<Item>::type, Batch>(source);
  if constexpr (std::is_integral_v<Request>) {  // StreamDataset, StatefulDataset: the request is a number of samples
    source.open = [dataset] {
      if constexpr (requires { dataset->reset(); }) dataset->reset();
      Reading reading;
      reading.over = [] { return false; };
      reading.next = [dataset](size_t count) -> Any {
        if constexpr (D::is_stateful) {
          auto item = dataset->get_batch(count);
          return item ? std::make_shared<Item>(std::move(*item)) : Any();
        } else {
          return std::make_shared<Item>(dataset->get_batch(count));
        }
      };
      return reading;
    };
  } else {
    source.size = [dataset] { return dataset->size(); };
    source.read = [dataset](Indices indices) -> Any {
      try {
        return std::make_shared<Item>(dataset->get_batch(Request(std::vector<size_t>(indices.begin(), indices.end()))));
      } catch (...) {
        rethrow_with_samples(indices);
      }
    };
  }
}

// `start()` opens an epoch and returns next() -> std::optional<Item>, which may offer cursor() and
// seek().
template <class Batch, bool kReady, class Start>
void read_stream(Source& source, Start start) {
  using Next = std::invoke_result_t<Start&>;
  using Item = typename std::invoke_result_t<Next&>::value_type;
  if constexpr (kReady) {
    static_assert(std::convertible_to<Item, Batch>, "the items of gannet::Batched(stream) are not the loader's batches");
  } else {
    describe_samples<Item, Batch>(source);
  }
  source.has_cursor = HasCursor<Next> || source.cursor;
  source.open = [start, lasting = source.cursor]() mutable {
    struct Epoch {
      Next next;
      bool over = false;
    };
    auto epoch = std::make_shared<Epoch>(Epoch{start()});
    Reading reading;
    reading.next = [epoch](size_t count) -> Any {
      if constexpr (kReady) count = 1;
      std::vector<Item> samples;
      while (!epoch->over && samples.size() < count) {
        std::optional<Item> item = epoch->next();
        epoch->over = !item;
        if (item) samples.push_back(std::move(*item));
      }
      if (samples.empty()) return nullptr;
      if constexpr (kReady) {
        return std::make_shared<Batch>(std::move(samples.front()));
      } else {
        return std::make_shared<std::vector<Item>>(std::move(samples));
      }
    };
    reading.over = [epoch] { return epoch->over; };
    if constexpr (HasCursor<Next>) {
      reading.cursor = [epoch] { return Value(std::as_const(epoch->next).cursor()); };
      reading.seek = [epoch](const Value& where) { epoch->next.seek(where); };
    } else {
      reading.cursor = lasting;
    }
    return reading;
  };
}

// The function next() of a range. The iterator is incremented only when the following item is
// requested, so that no item is made before it is needed.
template <class R>
struct RangeWalk {
  using Iterator = decltype(std::declval<R&>().begin());
  using Item = std::remove_cvref_t<decltype(*std::declval<Iterator&>())>;
  std::shared_ptr<R> range;
  std::optional<Iterator> at = {};

  std::optional<Item> operator()() {
    if (!at) {
      at.emplace(range->begin());
    } else if (*at != range->end()) {
      ++*at;
    }
    return *at != range->end() ? std::optional<Item>(**at) : std::nullopt;
  }
  Value cursor() const
    requires HasCursor<R>
  {
    return std::as_const(*range).cursor();
  }
  void seek(const Value& where)
    requires HasCursor<R>
  {
    range->seek(where);
  }
};

// A stream is a range, a callable that opens an epoch, or a callable that yields samples and has a
// state that outlives an epoch.
template <class Batch, bool kReady, class D>
void read_stream_of(Source& source, const std::shared_ptr<D>& stream) {
  if constexpr (Range<D>) {
    read_stream<Batch, kReady>(source, [stream] { return RangeWalk<D>{stream}; });
  } else if constexpr (requires { (*stream)()(); }) {
    read_stream<Batch, kReady>(source, [stream] { return (*stream)(); });
  } else {
    static_assert(
        requires { typename std::invoke_result_t<D&>::value_type; },
        "not a dataset: give a torch::data dataset, an object with size() and get(i), a range, or a callable that "
        "returns std::optional<Sample>");
    if constexpr (HasCursor<D>) {
      source.cursor = [stream] { return Value(std::as_const(*stream).cursor()); };
      source.seek = [stream](const Value& where) { stream->seek(where); };
    }
    if constexpr (requires { stream->interrupt(true); }) {
      source.interrupt = [stream](bool on) { stream->interrupt(on); };
    }
    read_stream<Batch, kReady>(source, [stream] { return [stream] { return (*stream)(); }; });
  }
}

template <class Batch, class D>
Source make_source(std::shared_ptr<D> dataset) {
  Source source;
  source.batch = &typeid(Batch);
  if constexpr (ReadsSingly<D>) {
    source.size = [dataset] { return std::optional<size_t>(dataset->size()); };
    read_singly<Batch>(source, [dataset](size_t index) { return dataset->get(index); });
  } else if constexpr (TorchDataset<D>) {
    read_torch<Batch>(source, dataset);
  } else if constexpr (MapStyle<D>) {
    source.size = [dataset] { return std::optional<size_t>(dataset->size()); };
    read_singly<Batch>(source, [dataset](size_t index) { return dataset->get(index); });
  } else if constexpr (RandomAccess<D>) {
    source.size = [dataset] { return std::optional<size_t>(dataset->end() - dataset->begin()); };
    read_singly<Batch>(source, [dataset](size_t index) { return dataset->begin()[index]; });
  } else if constexpr (IsBatched<D>::value) {
    using Stream = decltype(D::stream);
    read_stream_of<Batch, true>(source, std::shared_ptr<Stream>(dataset, &dataset->stream));
  } else {
    read_stream_of<Batch, false>(source, dataset);
  }
  return source;
}

// The type of the only parameter of a callable, such as Batch(std::vector<Sample>).
template <class F>
struct FirstArgument {};
template <class R, class A>
struct FirstArgument<R (*)(A)> {
  using type = std::remove_cvref_t<A>;
};
template <class C, class R, class A>
struct FirstArgument<R (C::*)(A)> {
  using type = std::remove_cvref_t<A>;
};
template <class C, class R, class A>
struct FirstArgument<R (C::*)(A) const> {
  using type = std::remove_cvref_t<A>;
};
template <class C, class R, class A>
struct FirstArgument<R (C::*)(A) noexcept> : FirstArgument<R (C::*)(A)> {};
template <class C, class R, class A>
struct FirstArgument<R (C::*)(A) const noexcept> : FirstArgument<R (C::*)(A)> {};

template <class Batch, class Samples, class F>
Collator make_collator(F function) {
  static_assert(requires { typename VectorElement<Samples>::type; }, "a collate function takes std::vector<Sample>");
  Collator collator;
  collator.sample = &typeid(typename VectorElement<Samples>::type);
  collator.call = [function](void* samples) mutable -> Any {
    return std::make_shared<Batch>(function(std::move(*static_cast<Samples*>(samples))));
  };
  return collator;
}

}  // namespace loading

}  // namespace gannet
