// Keeps a step's numbers in the same memory as the pieces
// (GANNET_OPTIMIZER_TAKES_DEVICE_NUMBERS). There is one array for each group and number of missed
// updates, at the same address in every step. An array is rewritten when a number has changed, from
// page-locked memory that later steps do not reuse, since the copy may still be in flight.
//
//   numbers.give(args, piece.lag, device);    // sets args.device_numbers and removes the host's numbers from args
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <gannet/abi.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "interfaces/device_numbers.h"
#include "tensor/pinned.h"

namespace gannet {

class StepNumbers {
 public:
  // On a device, the copy is queued on the current stream, so calls queued earlier see the previous
  // numbers.
  void give(gannet_update_args& args, int64_t lag, at::Device device) {
    CopiedNumbers& kept = kept_[{args.group, lag}];
    std::vector<double> values = numbers_of(args);
    if (!kept.memory.defined() || values != kept.values || kept.memory.device() != device) {
      const auto numel = static_cast<int64_t>(values.size());
      if (!kept.memory.defined() || kept.memory.numel() != numel || kept.memory.device() != device)
        kept.memory = at::empty({numel}, at::TensorOptions().dtype(at::kDouble).device(device));
      const at::Tensor sent = pinned_empty({numel}, at::kDouble, device);
      std::copy(values.begin(), values.end(), sent.mutable_data_ptr<double>());
      kept.values = std::move(values);
      kept.memory.copy_(sent, /*non_blocking=*/true);
    }
    give_numbers(args, kept.memory.const_data_ptr<double>(), kept.values.size());
  }

 private:
  struct CopiedNumbers {
    std::vector<double> values;  // contents of `memory`, once the stream has executed the copy
    at::Tensor memory;           // [values] fp64
  };
  std::map<std::pair<uint32_t, int64_t>, CopiedNumbers> kept_;  // by group and lag
};

}  // namespace gannet
