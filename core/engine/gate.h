// The gate of an engine's public calls: one table lists which call is refused in which state
// (gate.cpp; docs/program.md shows it).
//
//   const Entered entered(impl, Call::kSaveCheckpoint);   // throws the Error(kOrder) of the first state that refuses the call
//
// A call that is refused only in some cases enters first, and checks the gate once it knows which
// case applies:
//
//   const Calls::Entered entered(impl.calls, name_of(Call::kEval));
//   if (weights_differ) gate::require(impl, Call::kEvalOfOtherWeights);
#pragma once

#include <gannet/engine.h>

#include <cstdint>
#include <string>

#include "engine/calls.h"

namespace gannet {

enum class Call : uint8_t {
  // training
  kForward,
  kEvaluatingForward,  // after eval(), or under NoGradGuard
  kBackward,
  kScale,
  kAllreduceGradients,
  kStep,
  kPerturb,
  kKeepSecondGradient,
  kTrainBatch,  // called by a driver of the engine (micro_batch.h)
  kAbandonStep,
  kZeroGrad,
  kNoSync,
  kTrain,
  kEval,
  kTrainOfOtherWeights,  // train() and eval() that put different weights into the model
  kEvalOfOtherWeights,
  // checkpoints
  kSaveCheckpoint,
  kLoadCheckpoint,
  kSave16bitModel,
  kSaveFp32Model,
  // values
  kRefreshMasters,
  kSetFullFp32Parameter,
  kGatheredParameters,
  kGatheredParametersToWrite,
  kSwapOptimizer,
  kFullFp32Parameter,
  kFullGradient,
  kFullOptimizerState,
  kSetFullGradient,
  kSetFullOptimizerState,
  kFp32Parameters,
  kFp32State,
  kSetLr,
  kSetTrainBatchSize,
  kSetTrainMicroBatchSize,
  kMean,
  kGather,
  kCount,
};

/// The call's name in errors, logs and the watch, without parentheses.
const char* name_of(Call call);

namespace gate {

/// The states, in the order in which they are checked.
enum class State : uint8_t {
  kWithinBackward,     // the call comes from a hook or a node of the engine's own backward
  kTorn,               // parameter values are undefined
  kBatchFailed,        // a driver of the engine (micro_batch.h) failed in the middle of a step
  kBatchRuns,          // such a driver has micro-batches in flight
  kIsPipeline,         // the engine trains only through a driver: PipelineEngine::train_batch()
  kTakenOver,          // the module belongs to a newer engine
  kEvaluationWeights,  // the model has weights that differ from those that are trained
  kBetweenPasses,      // an earlier pass of the step has ended (perturb(), keep_second_gradient())
  kWriteGuard,         // a zero::GatheredParameters with write_from is open
  kReadGuard,          // a guard without write_from is open, which shows gathered values
  kNoSync,             // a NoSync scope is open
  kNoOptimizer,        // the engine does not train
  kMicroBatch,         // a micro-batch is between forward() and step()
  kGradients,          // a micro-batch is between backward() and step()
  kCount,
};

bool is_in(const EngineBase::Impl& impl, State state);
/// Throws the Error(kOrder) of the first state that the engine is in and that refuses the call.
void require(const EngineBase::Impl& impl, Call call);
bool refuses(State state, Call call);
/// Returns the table shown in docs/program.md: one row per state, with the calls refused in that
/// state.
std::string table();

}  // namespace gate

/// Enters a call if the engine's state allows it. The calling thread is in the call until the scope
/// ends.
class Entered {
 public:
  Entered(EngineBase::Impl& impl, Call call);

 private:
  Calls::Entered thread_;
};

}  // namespace gannet
