// Keeps the inputs of regions between forward and backward in one of these ways, or a combination:
// as this rank's slice of data that the ranks of the tensor axis share, on a tier, or contiguous in
// one buffer. Values are moved as raw memory; a restored tensor has its original strides.
//
//   const auto kept = store.keep(inputs, name);       // after the region's forward
//   kept->start_coming();                             // if the inputs are on a drive: reads them in the background
//   at::Tensor x = kept->values(0);                   // detached from the graph
//
// These are not moved: parameters and their views, which their owner keeps; tensors that are empty, not plain memory or not
// from LibTorch's allocators; with shared slices, also non-floating-point tensors and those with fewer elements than ranks.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "activation/contiguous_inputs.h"
#include "activation/tier_memory.h"
#include "activation/version.h"
#include "activation/view.h"
#include "device/device_comm.h"

namespace gannet::activation {

class InputStore : public std::enable_shared_from_this<InputStore> {
 public:
  struct Options {
    std::shared_ptr<TierMemory> tier;                           // null: the device's memory
    std::shared_ptr<DeviceComm> ranks;                          // null: inputs are kept in full
    std::optional<int64_t> slots;                               // slots in each argument's buffer; null: no such buffers
    std::function<bool(const c10::StorageImpl*)> is_parameter;  // finds parameters that are not leaves or views; may be empty
  };
  explicit InputStore(Options options) : options_(std::move(options)) {
    if (options_.slots) contiguous_ = std::make_unique<ContiguousInputs>(*options_.slots, options_.tier);
  }
  const Options& options() const { return options_; }
  /// Returns null if there are no buffers.
  const ContiguousInputs* contiguous() const { return contiguous_.get(); }

  class Memory;  // one byte range of a storage

  // The inputs of one region.
  class KeptInputs {
   public:
    bool is_moved(size_t input) const { return memories_[input] != nullptr; }
    /// Returns the values of an input. This is a collective: every rank of the tensor axis calls
    /// it, in the same order.
    at::Tensor values(size_t input);
    uint64_t bytes_here() const;  // bytes on this rank; slices are padded to equal size
    void start_coming();
    /// Starts reading the inputs of the previous region, which backward reaches next.
    void start_those_before() const;

   private:
    friend class InputStore;
    std::vector<std::shared_ptr<Memory>> memories_;  // by input; null: the input stays in place
    std::vector<at::Tensor> shapes_;                 // by input; tensors on the meta device
    std::weak_ptr<KeptInputs> before_;
  };
  /// Keeps the inputs of one region. Ignores undefined tensors.
  std::shared_ptr<KeptInputs> keep(const std::vector<at::Tensor>& inputs, const std::string& name);

 private:
  using StorageRange = std::tuple<const c10::StorageImpl*, int64_t, int64_t>;  // first byte, bytes
  bool is_movable(const at::Tensor& tensor) const;
  std::shared_ptr<Memory> memory_of(const at::Tensor& tensor, size_t argument, const std::string& name);

  const Options options_;
  std::unique_ptr<ContiguousInputs> contiguous_;
  std::mutex mutex_;
  std::weak_ptr<KeptInputs> last_;
  struct KnownInput {
    WeakStorage storage;  // while it is held, no other storage can have this address
    Version version;      // version of the tensor that was kept
    std::weak_ptr<Memory> memory;
  };
  std::map<StorageRange, KnownInput> known_;  // so that an input shared by several regions is kept once
};

}  // namespace gannet::activation
