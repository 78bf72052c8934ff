// Parameters that several stages of a pipeline hold (declare_tied in gannet/split.h): an embedding on the first stage and the
// head on the last one. Each stage treats its copy as any other parameter: averaged and sharded along data, updated there. What
// makes the copies one tensor is here:
//
//   impl.ties = Ties::agree(impl);              // which there are; every rank of the mesh calls it, all throw or none
//   impl.ties->share_first_values(impl);        // those of the first stage that holds it
//   impl.ties->adopt(impl.store);               // the first stage counts it in the norm
//   impl.ties->sum_gradients(impl);             // at a boundary, behind the average along data: every copy gets the same update
//
// Gradients are summed in step() and not in backward: a stage's backward waits for that of the stage behind it, and would wait
// there for the stage before it.
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
  std::vector<std::string> parameters;  // [stages] what it is called there
  std::string parameter;                // here; "": this stage does not hold it
  at::Tensor tensor;                    // likewise; undefined
  bool is_first = false;                // this rank's stage is the first of `stages`
  ProcessGroup* ranks = nullptr;        // one of each of `stages`, with this rank's coordinates along the other axes
  DeviceComm* comm = nullptr;           // the same ones, for tensors
};

class Ties {
 public:
  /// Null: the mesh has one stage, or nothing is tied. Throws Error(kConfig) and Error(kMismatch) on every rank where stages or
  /// ranks of a stage have declared different things.
  static std::unique_ptr<Ties> agree(const EngineBase::Impl& impl);

  const std::deque<Tie>& all() const { return ties_; }  // by name, the same on every rank
  const Tie* find(const std::string& parameter) const;  // by its name here
  /// What this rank has declared, as text: it may not change after initialize.
  const std::string& declared() const { return declared_; }

  void share_first_values(const RankContext& context) const;
  void adopt(ParameterStore& store) const;
  /// Every rank of the mesh calls it. Error(kMismatch) on all of them where some stages update a tensor and others do not.
  void sum_gradients(const EngineBase::Impl& impl) const;

 private:
  struct Group {
    std::vector<uint32_t> stages;
    std::shared_ptr<ProcessGroup> ranks;
    std::unique_ptr<DeviceComm> comm;
  };
  void make_groups(const EngineBase::Impl& impl);

  std::deque<Tie> ties_;
  std::deque<Group> groups_;  // of the stages that hold the same ones
  std::string declared_;
};

/// The module's, as text; "" where nothing is tied, or the mesh has one stage.
std::string declared_ties(const EngineBase::Impl& impl);

/// What checkpoints call a parameter of this rank.
std::string saved_name(const EngineBase::Impl& impl, const std::string& parameter);
/// What they call its sum of gradients between two boundaries, of which each stage has its own.
std::string saved_sum_name(const EngineBase::Impl& impl, const std::string& parameter);

}  // namespace gannet
