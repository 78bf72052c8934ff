// Records which existing tensors a region's forward read and wrote, so that a recomputation starts
// from the same state as the forward and leaves the same state behind.
//
//   RegionRecorder recorder(inputs);  f(x);    // observes from its construction until finish()
//   const RegionRecord record = recorder.finish();
//   ...
//   record.require_unchanged("the region");    // checks tensors that the forward read
//   { const RecordReplay there(record); f(x); }    // restores written tensors; undone afterwards
//
// Operators are observed through params/observer.h. Two things are not covered: memory that the
// program reads and writes by address, and storages over memory that LibTorch does not own
// (from_blob without a deleter); such storages are neither kept nor written.
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

// A generator, and its state before the first operator that drew from it.
struct GeneratorSnapshot {
  at::Generator generator;
  at::Tensor state;
};

class RegionRecord {
 public:
  /// Throws Error(kOrder) if a tensor that the forward read was changed in place afterwards, and
  /// Error(kMismatch) if its requires_grad changed.
  void require_unchanged(const std::string& region) const;

 private:
  friend class RegionRecorder;
  friend class RecordReplay;
  struct ReadTensor {
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor;
    uint32_t version;
    bool requires_grad;
  };
  struct WrittenStorage {
    at::Tensor tensor, before;  // the whole storage
  };
  std::vector<ReadTensor> reads_;
  std::vector<WrittenStorage> writes_;
};

class Operators;

class RegionRecorder {
 public:
  /// `inputs` are the region's inputs, which the region keeps itself.
  explicit RegionRecorder(const std::vector<at::Tensor>& inputs);
  ~RegionRecorder();
  RegionRecorder(const RegionRecorder&) = delete;
  const std::string& current_operator() const;
  /// Ends the recording.
  RegionRecord finish();
  /// The generators that were passed to operators, with their states.
  std::vector<GeneratorSnapshot> drawn_from() const;

 private:
  std::unique_ptr<Operators> operators_;
};

class RecordReplay {
 public:
  explicit RecordReplay(const RegionRecord& record);
  ~RecordReplay();
  RecordReplay(const RecordReplay&) = delete;
  /// Name of the operator that is running, such as "aten::linear"; "" between operators.
  const std::string& current_operator() const;

 private:
  std::unique_ptr<Operators> operators_;
};

}  // namespace gannet::activation
