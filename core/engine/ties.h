// Parameters that several pipeline stages hold (declare_tied in gannet/split.h), such as an
// embedding on the first stage and the head on the last. Each stage treats its copy like any other
// parameter: it averages and shards the copy along the data axis, and updates it itself. This class
// keeps the copies equal:
//
//   impl.ties = Ties::agree(impl);              // finds the ties; every rank of the mesh calls it, and all throw or none
//   impl.ties->share_first_values(impl);        // every stage gets the values of the first stage that holds the tensor
//   impl.ties->adopt(impl.store);               // only the first stage counts the tensor in the norm
//   impl.ties->sum_gradients(impl);             // at a boundary, after the average along data: every copy gets the same update
//
// Gradients are summed in step() and not in backward: a stage's backward waits for the backward of
// the next stage, which would wait in the sum for the stage before it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "device/device_comm.h"
#include "engine/impl.h"

namespace gannet {

struct Tie {
  std::string name;                     // as the program declared it
  std::vector<uint32_t> stages;         // the stages that hold it, ascending
  std::vector<std::string> parameters;  // [stages] its name on each of the stages
  std::string parameter;                // its name on this stage; "": this stage does not hold it
  at::Tensor tensor;                    // the tensor on this stage; undefined if this stage does not hold it
  bool is_first = false;                // this rank's stage is the first of `stages`
  ProcessGroup* ranks = nullptr;        // one rank of each of `stages`, with this rank's coordinates along the other axes
  DeviceComm* comm = nullptr;           // the same ranks, for tensors
};

class Ties {
 public:
  /// Returns null if the mesh has one stage, or if nothing is tied. Throws on every rank: Error(kConfig) or Error(kMismatch)
  /// if the declarations are inconsistent, and Error(kUnsupported) with checkpoint.use_node_local_storage.
  static std::unique_ptr<Ties> agree(const EngineBase::Impl& impl);

  const std::deque<Tie>& all() const { return ties_; }  // sorted by name; the same on every rank
  const Tie* find(const std::string& parameter) const;  // by the parameter's name on this stage
  /// This rank's declarations, as text. They may not change after initialize.
  const std::string& declared() const { return declared_; }

  void share_first_values(const RankContext& context) const;
  void adopt(ParameterStore& store) const;
  /// Every rank of the mesh calls it. Throws Error(kMismatch) on all of them if some stages update
  /// a tensor and others do not.
  void sum_gradients(const EngineBase::Impl& impl) const;

 private:
  struct StageGroup {
    std::vector<uint32_t> stages;
    std::shared_ptr<ProcessGroup> ranks;
    std::unique_ptr<DeviceComm> comm;
  };
  void make_groups(const EngineBase::Impl& impl);

  std::deque<Tie> ties_;
  std::deque<StageGroup> groups_;  // one for each set of stages that share tensors
  std::string declared_;
};

/// Returns the module's ties, as text; "" if nothing is tied, or if the mesh has one stage.
std::string declared_ties(const EngineBase::Impl& impl);

/// Returns the name that a parameter of this rank has in checkpoints.
std::string saved_name(const EngineBase::Impl& impl, const std::string& parameter);
/// Returns the name that a parameter's gradient sum between two boundaries has in checkpoints. Each
/// stage has its own sum for a tied parameter.
std::string saved_sum_name(const EngineBase::Impl& impl, const std::string& parameter);

}  // namespace gannet
