// A region of a forward. Its saved tensors are dropped, and recomputed when backward requests the
// first of them.
//
// In the forward each saved tensor becomes a place without bytes, in the order in which operators
// save. The recomputation runs the function again with its own graph, and its operators save in the
// same order: the n-th saved tensor goes to the n-th place. That graph is discarded. The nodes of
// the original graph are unchanged, and read the tensors that they would have kept from their
// places.
//
// Places are filled for one backward at a time, and emptied as they are read. A backward in two
// passes (grads/split_backward.h) recomputes in the first one, which does not empty the places:
// tensors that the second pass does not need are released with the nodes that saved them.
#pragma once

#include <ATen/core/Tensor.h>
#include <gannet/checkpointing.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "activation/configuration.h"
#include "activation/inputs.h"
#include "activation/saved_tensors.h"
#include "activation/surroundings.h"
#include "activation/trace.h"
#include "activation/version.h"

namespace gannet::activation {

// The place of one saved tensor.
struct SavedTensorPlace {
  // Properties of the tensor that the forward saved; the recomputation must produce the same.
  std::string saved_by;  // name of the operator
  std::vector<int64_t> sizes;
  at::ScalarType dtype = at::kFloat;
  std::optional<at::Device> device;
  Version version;

  struct FilledTensor {
    at::Tensor tensor;
    bool is_read = false;  // this backward has read it; from then on only a read of this place fills it again
  };
  std::map<int64_t, FilledTensor> by_backward;  // by key_of_backward()
};

class Region : public std::enable_shared_from_this<Region> {
 public:
  Region(const checkpointing::Options& options, const std::vector<at::Tensor>& inputs, checkpointing::detail::Again again);

  /// Runs the function without keeping the tensors that it saves.
  void run(const std::function<void()>& forward, const std::vector<at::Tensor>& inputs);
  /// Returns the tensor of a place, for the backward that runs on this thread.
  at::Tensor read(SavedTensorPlace& place);

 private:
  class DroppingKeeper;
  class FillingKeeper;
  void recompute(int64_t backward, SavedTensorPlace& wanted);
  void forget(int64_t backward);
  std::string name() const;

  const checkpointing::Options options_;
  const checkpointing::detail::Again again_;
  const std::shared_ptr<const Configuration> configuration_ = in_force();  // null: nothing is configured
  std::optional<WaitingRegion> waiting_{std::in_place};                    // set until the first backward reaches the region
  const std::vector<at::Device> devices_;
  Surroundings surroundings_;
  RegionRecord record_;
  Inputs inputs_;
  std::vector<std::weak_ptr<SavedTensorPlace>> places_;  // in the order of saving; an expired one is no longer needed
  bool has_run_ = false;
  std::deque<int64_t> backwards_;  // backward passes that have filled places, the latest last
  std::mutex mutex_;               // backward threads of several devices may read concurrently
};

}  // namespace gannet::activation
