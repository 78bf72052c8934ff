// Where inputs of regions are kept between forward and backward: as this rank's slice of what the ranks of the tensor axis have
// in common, on a tier, side by side in one buffer, or several of these. Values are moved as memory: a tensor comes back with the
// strides that it had.
//
//   const auto kept = store.keep(inputs, name);       // after the region's forward; null for what stays as it is
//   kept->start_coming();                             // on a drive, in the background
//   at::Tensor x = kept->values(0);                   // without a graph
//
// Not moved: parameters and views of them, whose owner keeps them anyway; tensors without memory of LibTorch's; what is empty.
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
    std::shared_ptr<DeviceComm> ranks;                          // null: whole
    std::optional<int64_t> slots;                               // of one buffer for each argument; null: no such buffers
    std::function<bool(const c10::StorageImpl*)> is_parameter;  // beside leaves and their views; may be empty
  };
  explicit InputStore(Options options) : options_(std::move(options)) {
    if (options_.slots) contiguous_ = std::make_unique<ContiguousInputs>(*options_.slots, options_.tier);
  }
  const Options& options() const { return options_; }
  /// Null: none.
  const ContiguousInputs* contiguous() const { return contiguous_.get(); }

  class Memory;  // of one stretch of a storage

  // Of one region.
  class Kept {
   public:
    bool is_moved(size_t input) const { return memories_[input] != nullptr; }
    /// Every rank of the tensor axis calls it, in the same order.
    at::Tensor values(size_t input);
    uint64_t bytes_here() const;  // of this rank: slices are padded to one size
    void start_coming();
    /// Those of the region before, which backward comes to next.
    void start_those_before() const;

   private:
    friend class InputStore;
    std::vector<std::shared_ptr<Memory>> memories_;  // by input; null: it stays
    std::vector<at::Tensor> shapes_;                 // by input, of device meta
    std::weak_ptr<Kept> before_;
  };
  /// Undefined tensors are left out.
  std::shared_ptr<Kept> keep(const std::vector<at::Tensor>& inputs, const std::string& name);

 private:
  using Stretch = std::tuple<const c10::StorageImpl*, int64_t, int64_t>;  // first byte, bytes
  bool is_movable(const at::Tensor& tensor) const;
  std::shared_ptr<Memory> memory_of(const at::Tensor& tensor, size_t argument, const std::string& name);

  const Options options_;
  std::unique_ptr<ContiguousInputs> contiguous_;
  std::mutex mutex_;
  std::weak_ptr<Kept> last_;
  struct Known {
    WeakStorage storage;  // while it is held, no other storage has the address
    Version version;      // of the tensor that was kept
    std::weak_ptr<Memory> memory;
  };
  std::map<Stretch, Known> known_;  // so that a tensor that is the input of several regions is kept once
};

}  // namespace gannet::activation
