// Parameters that several pipeline stages hold (declare_tied in gannet/split.h), such as an
// embedding on the first stage and the head on the last. Each stage treats its copy as any other
// parameter: averaged and sharded along data, and updated there. This class makes the copies one
// tensor:
//
// finds the ties; every rank of the mesh calls it, and all throw or none
// those of the first stage that holds the tensor
//   impl.ties->adopt(impl.store);               // the first stage counts it in the norm
// at a boundary, after the average along data: every copy gets the same update
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
  std::vector<uint32_t> stages;         // that hold it, ascending
  std::vector<std::string> parameters;  // [stages] its name there
  std::string parameter;                // its name here; "": this stage does not hold it
  at::Tensor tensor;                    // the tensor here; likewise undefined
  bool is_first = false;                // this rank's stage is the first of `stages`
  ProcessGroup* ranks = nullptr;        // one rank of each of `stages`, with this rank's coordinates along the other axes
  DeviceComm* comm = nullptr;           // the same ranks, for tensors
};

class Ties {
 public:
  /// Returns null if the mesh has one stage, or if nothing is tied. Throws Error(kConfig) and
  /// Error(kMismatch) on every rank if stages, or ranks of a stage, have declared different things.
  static std::unique_ptr<Ties> agree(const EngineBase::Impl& impl);

  const std::deque<Tie>& all() const { return ties_; }  // by name, the same on every rank
  const Tie* find(const std::string& parameter) const;  // by its name here
  /// This rank's declarations, as text: they may not change after initialize.
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

/// The module's ties, as text; "" if nothing is tied, or if the mesh has one stage.
std::string declared_ties(const EngineBase::Impl& impl);

/// The name of a parameter of this rank in checkpoints.
std::string saved_name(const EngineBase::Impl& impl, const std::string& parameter);
/// The name in checkpoints of its gradient sum between two boundaries. Each stage has its own sum.
std::string saved_sum_name(const EngineBase::Impl& impl, const std::string& parameter);

}  // namespace gannet
