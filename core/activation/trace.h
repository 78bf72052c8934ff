// What a region's forward did with tensors that were there before it, so that a recomputation starts where the forward started,
// and leaves behind what the forward left.
//
//   Recorder recorder(inputs);  { const zero::Observing seen(recorder.observer()); f(x); }
//   const Record record = recorder.finish();
//   ...
//   record.require_unchanged("the region");    // what the forward read is as it was
//   { const Replayed there(record); f(x); }    // with what the forward wrote as it was before, and afterwards as it is now
//
// Operators are seen by params/observer.h. What they do not show: memory that the program reads and writes by address, and
// storages over memory that LibTorch does not own (from_blob without a deleter), which are neither kept nor written.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

namespace gannet::activation {

// The state of a generator, before the first operator that drew from it.
struct DrawnFrom {
  at::Generator generator;
  at::Tensor state;
};

class Record {
 public:
  /// Throws Error(kOrder) where a tensor was changed in place since, Error(kMismatch) where its requires_grad was.
  void require_unchanged(const std::string& region) const;

 private:
  friend class Recorder;
  friend class Replayed;
  struct Read {
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor;
    uint32_t version;
    bool requires_grad;
  };
  struct Written {
    at::Tensor tensor, before;  // all of its storage
  };
  std::vector<Read> reads_;
  std::vector<Written> writes_;
};

class Operators;

class Recorder {
 public:
  /// `inputs` are the region's own, which it keeps itself.
  explicit Recorder(const std::vector<at::Tensor>& inputs);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  const std::string& current_operator() const;
  /// Ends the recording.
  Record finish();
  /// Generators that operators were given.
  std::vector<DrawnFrom> drawn_from() const;

 private:
  std::unique_ptr<Operators> operators_;
};

class Replayed {
 public:
  explicit Replayed(const Record& record);
  ~Replayed();
  Replayed(const Replayed&) = delete;
  /// Of the operator that runs at the moment: "aten::linear"; "" between two.
  const std::string& current_operator() const;

 private:
  std::unique_ptr<Operators> operators_;
};

}  // namespace gannet::activation
