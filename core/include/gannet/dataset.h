/// Dataset and Collate, the inputs of a DataLoader. A Dataset is any source of samples with its
/// type erased; a Collate turns samples into a batch.
///
///   gannet::Dataset<> images = torch::data::datasets::MNIST("data");              // a torch dataset, with .map(...) too
///   gannet::Dataset<> mine = std::make_shared<Mine>();                            // has size() and get(i); shared, not copied
///   gannet::Dataset<> in_memory = std::vector<gannet::Example>{...};              // anything with random access
///   gannet::Dataset<> stream = Frames{};                                          // has begin() and end(): no random access
///   gannet::Dataset<> solver = [&]() -> std::optional<gannet::Example> { ... };   // nullopt: end of the epoch
///   gannet::Dataset<> ready = gannet::Batched(Frames{});                          // a stream whose items are batches already
///   gannet::Dataset<> pushed = queue;                                             // a SampleQueue that the program fills
///
/// A stream is resumed by rereading the items that it has already yielded, unless it offers these
/// two functions:
///
///   gannet::Value cursor() const;         // the position after all items yielded so far; called after each micro-batch
///   void seek(const gannet::Value&);      // resumes at that position
///
/// A range offers them itself: the next begin() resumes at the position that seek() set, and any
/// other begin() restarts. With a callable that opens an epoch, the object that it returns offers
/// them. A callable that yields samples is never restarted: its state persists across epochs, and
/// seek() is called immediately, not when the next epoch begins. If such a callable waits for other
/// threads, it may also offer `void interrupt(bool on)`: while the interrupt is on, a call that
/// waits throws, so that a loader can end.
///
/// The batch is torch::data::Example<> unless another type is named. Samples are stacked by default
/// if a sample is a tensor, or has tensors as `data` and `target`; any other kind of sample needs a
/// Collate, which is any callable that names its sample type:
///
///   gannet::Collate<Tokens> pad = [](std::vector<std::string> lines) { return Tokens(lines); };
///
/// A dataset is read by the loader's workers: with one worker, by one thread at a time; with more,
/// get() must allow concurrent calls.
#pragma once

#include <ATen/core/Tensor.h>
#include <gannet/source.h>

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

// Defined by torch/torch.h, which is not included here because it takes 13 s to compile.
namespace torch::data {
template <typename Data, typename Target>
struct Example;
}

namespace gannet {

/// torch::data::Example<>: one sample, or one batch of them, with members data and target.
using Example = torch::data::Example<at::Tensor, at::Tensor>;

/// Marks a stream (a range or a callable) of complete micro-batches, which are neither grouped nor
/// collated.
template <class Stream>
struct Batched {
  explicit Batched(Stream given) : stream(std::move(given)) {}
  Stream stream;
};

/// See the top of the file. Copying shares the data.
template <class Batch = Example>
class Dataset {
 public:
  Dataset() = default;  ///< no dataset
  template <class D>
    requires(!std::same_as<std::remove_cvref_t<D>, Dataset> && !std::same_as<std::remove_cvref_t<D>, loading::Source>)
  Dataset(D&& dataset) {
    using Given = std::remove_cvref_t<D>;
    if constexpr (loading::IsQueue<Given>::value) {
      auto reader = [&] {
        if constexpr (loading::IsSharedPtr<Given>::value) {
          return dataset->reader();
        } else {
          return dataset.reader();
        }
      }();
      source_ = loading::make_source<Batch>(std::make_shared<decltype(reader)>(std::move(reader)));
    } else if constexpr (loading::IsSharedPtr<Given>::value) {
      source_ = loading::make_source<Batch>(std::forward<D>(dataset));
    } else {
      source_ = loading::make_source<Batch>(std::make_shared<Given>(std::forward<D>(dataset)));
    }
  }

  /// Wraps a Source that the program made, for example from another dataset's source(): a subset,
  /// or a different order.
  explicit Dataset(loading::Source source) : source_(std::move(source)) {}

  explicit operator bool() const { return source_.read || source_.open; }  ///< whether one was given
  bool empty() const { return !*this; }
  const loading::Source& source() const { return source_; }

 private:
  loading::Source source_;
};

/// Turns samples into a batch; the loader's workers run it. It is made from a callable
/// Batch(std::vector<Sample>) with an explicit (not auto) Sample, or from a torch::data::transforms
/// collation (such as Stack<>).
template <class Batch = Example>
class Collate {
 public:
  Collate() = default;  ///< the default: stacking
  template <class F>
    requires(!std::same_as<std::remove_cvref_t<F>, Collate>)
  Collate(F function) {
    if constexpr (requires { typename F::InputBatchType; }) {
      collator_ = loading::make_collator<Batch, typename F::InputBatchType>(
          [function](auto samples) mutable { return function.apply_batch(std::move(samples)); });
    } else if constexpr (std::is_pointer_v<F>) {
      collator_ = loading::make_collator<Batch, typename loading::FirstArgument<F>::type>(function);
    } else {
      static_assert(requires { &F::operator(); }, "a collate function names its sample type: (std::vector<Sample> samples)");
      collator_ =
          loading::make_collator<Batch, typename loading::FirstArgument<decltype(&F::operator())>::type>(std::move(function));
    }
  }

  explicit operator bool() const { return static_cast<bool>(collator_.call); }  ///< whether one was given
  bool empty() const { return !*this; }
  const loading::Collator& collator() const { return collator_; }

 private:
  loading::Collator collator_;
};

}  // namespace gannet
