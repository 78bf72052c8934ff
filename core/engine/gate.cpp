#include "engine/gate.h"

#include <torch/csrc/autograd/graph_task.h>

#include <array>
#include <cstring>
#include <initializer_list>
#include <utility>

#include "base/format.h"
#include "engine/evaluation.h"
#include "engine/impl.h"

namespace gannet {
namespace gate {
namespace {

using States = uint32_t;

constexpr States bit(State state) { return States{1} << static_cast<uint8_t>(state); }
constexpr States states(std::initializer_list<State> list) {
  States all = 0;
  for (const State state : list) all |= bit(state);
  return all;
}

using enum State;

// These states refuse every call that uses the current parameters or gradients.
constexpr States kUnusable = states({kWithinBackward, kBatchFailed, kBatchRuns, kTorn, kTakenOver});
constexpr States kOpenGuards = states({kWriteGuard, kReadGuard});
constexpr States kEndsPass = kUnusable | kOpenGuards | states({kEvaluationWeights, kNoSync, kNoOptimizer});
constexpr States kBackwards = kUnusable | states({kEvaluationWeights, kNoOptimizer});
constexpr States kWholeModel = kUnusable | states({kBetweenPasses, kWriteGuard});
constexpr States kOtherWeights = kUnusable | kOpenGuards | states({kMicroBatch});
constexpr States kNothing = 0;

struct CallRow {
  Call call;
  const char* name;
  States refused;
};

constexpr std::array<CallRow, static_cast<size_t>(Call::kCount)> kRows{{
    {Call::kForward, "forward", kUnusable | states({kIsPipeline, kWriteGuard})},
    {Call::kEvaluatingForward, "forward", kUnusable},
    {Call::kBackward, "backward", kBackwards | states({kIsPipeline})},
    {Call::kScale, "scale", kBackwards | states({kIsPipeline})},
    {Call::kAllreduceGradients, "allreduce_gradients", kUnusable | states({kIsPipeline})},
    {Call::kStep, "step", kEndsPass | states({kIsPipeline})},
    {Call::kPerturb, "perturb", kEndsPass | states({kIsPipeline})},
    {Call::kKeepSecondGradient, "keep_second_gradient", kEndsPass | states({kIsPipeline})},
    {Call::kTrainBatch, "train_batch", kEndsPass | states({kBetweenPasses})},
    {Call::kAbandonStep, "abandon_step", kUnusable | states({kIsPipeline, kNoOptimizer})},
    {Call::kZeroGrad, "zero_grad", states({kWithinBackward, kBatchRuns})},
    {Call::kNoSync, "no_sync", states({kIsPipeline, kBatchRuns})},
    {Call::kTrain, "train", states({kBatchRuns})},
    {Call::kEval, "eval", states({kBatchRuns, kBetweenPasses})},
    {Call::kTrainOfOtherWeights, "train", kOtherWeights},
    {Call::kEvalOfOtherWeights, "eval", kOtherWeights},
    {Call::kSaveCheckpoint, "save_checkpoint", kWholeModel | states({kEvaluationWeights, kGradients})},
    {Call::kLoadCheckpoint, "load_checkpoint",
     kOpenGuards | states({kWithinBackward, kBatchRuns, kEvaluationWeights, kBetweenPasses})},
    {Call::kSave16bitModel, "save_16bit_model", kWholeModel},
    {Call::kSaveFp32Model, "save_fp32_model", kWholeModel},
    {Call::kRefreshMasters, "refresh_masters", kUnusable | states({kEvaluationWeights, kBetweenPasses})},
    {Call::kSetFullFp32Parameter, "set_full_fp32_parameter",
     kOpenGuards | states({kWithinBackward, kBatchRuns, kEvaluationWeights, kBetweenPasses})},
    {Call::kGatheredParameters, "zero::GatheredParameters", kNothing},
    {Call::kGatheredParametersToWrite, "zero::GatheredParameters with write_from",
     states({kBatchRuns, kEvaluationWeights, kBetweenPasses})},
    {Call::kSwapOptimizer, "swap_optimizer", kBackwards | states({kBetweenPasses})},
    {Call::kFullFp32Parameter, "full_fp32_parameter", kNothing},
    {Call::kFullGradient, "full_gradient", kNothing},
    {Call::kFullOptimizerState, "full_optimizer_state", kNothing},
    {Call::kSetFullGradient, "set_full_gradient", kNothing},
    {Call::kSetFullOptimizerState, "set_full_optimizer_state", kNothing},
    {Call::kFp32Parameters, "fp32_parameters", kNothing},
    {Call::kFp32State, "fp32_state", kNothing},
    {Call::kSetLr, "set_lr", kNothing},
    {Call::kSetTrainBatchSize, "set_train_batch_size", states({kBatchRuns})},
    {Call::kSetTrainMicroBatchSize, "set_train_micro_batch_size", states({kBatchRuns})},
    {Call::kMean, "mean", kNothing},
    {Call::kGather, "gather", kNothing},
}};

constexpr bool is_in_order() {
  for (size_t i = 0; i < kRows.size(); ++i)
    if (kRows[i].call != static_cast<Call>(i)) return false;
  return true;
}
static_assert(is_in_order(), "a row for each call, in the order of Call");

const CallRow& row(Call call) { return kRows[static_cast<size_t>(call)]; }

// Returns the name of the call, as in "step()". A name with a space is not a function name and
// is returned unchanged.
std::string called(Call call) { return formatted("{}{}", name_of(call), std::strchr(name_of(call), ' ') ? "" : "()"); }

Error refused_while_held(const std::string& held, Call call) {
  return {ErrorCode::kOrder,
          formatted("{} was called while a zero::GatheredParameters guard holds '{}': the guard has values of its own until it "
                    "ends",
                    called(call), held),
          formatted("end the guard before {}", called(call))};
}

Error refused_between_passes(const EngineBase::Impl& impl, Call call) {
  const EarlierPasses& earlier = *impl.passes.earlier;
  return {
      ErrorCode::kOrder,
      formatted(
          "{} was called between {}() and the step() that ends step {}{}", called(call),
          earlier.is_perturbed ? "perturb" : "keep_second_gradient", impl.progress.global_steps + 1,
          earlier.has_moved ? ": the model has the parameters that the optimizer perturbed, and not those that it trains" : ""),
      "call it after step(); abandon_step() puts everything back to where the step began"};
}

Error refusal(const EngineBase::Impl& impl, State state, Call call) {
  const std::string name = called(call);
  switch (state) {
    case kWithinBackward:
      return {ErrorCode::kOrder,
              formatted("{} was called within a backward of this engine (by a hook, or by a node of its graph)", name),
              "call it when the backward has returned"};
    case kBatchFailed:
      return {ErrorCode::kOrder,
              formatted("{} was called after {}() failed in step {}", name, name_of(Call::kTrainBatch), impl.driven.failed_step),
              "load_checkpoint() brings every rank back to a saved state"};
    case kBatchRuns:
      return {ErrorCode::kOrder,
              formatted("{} was called within {}(), which runs the micro-batches of the step itself", name, impl.driven.call),
              formatted("call it before or after {}()", impl.driven.call)};
    case kIsPipeline:
      return {ErrorCode::kOrder,
              formatted("{} was called on the engine of a pipeline, whose stages run all micro-batches of a step together", name),
              "call train_batch() for a step, and eval_batch() to evaluate"};
    case kTorn:
      return {ErrorCode::kOrder,
              formatted("{} was called although parameter values are undefined: {}", name, impl.progress.torn()),
              "load_checkpoint() brings every rank back to a saved state"};
    case kTakenOver:
      return {ErrorCode::kOrder,
              formatted("{} was called on an engine that has no parameters any more: {}", name, impl.ownership->lost()),
              "use the newer engine, and let this one end"};
    case kEvaluationWeights:
      return {ErrorCode::kOrder,
              formatted("{} was called after eval(): the model has the weights that {} evaluates with, and not those that it "
                        "trains",
                        name, evaluating_part(impl)),
              "call engine->train() first"};
    case kBetweenPasses:
      return refused_between_passes(impl, call);
    case kWriteGuard:
      return refused_while_held(impl.guards.writing.front(), call);
    case kReadGuard:
      return refused_while_held(impl.store.held(), call);
    case kNoSync:
      return {ErrorCode::kOrder, formatted("{} was called inside no_sync()", name),
              formatted("end the NoSync scope before {}", name)};
    case kNoOptimizer:
      return {ErrorCode::kOrder, formatted("{} was called, but there is no optimizer", name),
              "add an \"optimizer\" block to the config, or pass one to initialize"};
    case kMicroBatch:
      return {ErrorCode::kOrder,
              formatted("{} was called between forward() and step(), and {} evaluates with other weights than it trains: the "
                        "gradients would be those of neither",
                        name, evaluating_part(impl)),
              "call it after step()"};
    case kGradients:
      return {ErrorCode::kOrder, formatted("{} was called between backward() and step()", name), "save after step()"};
    case kCount:
      break;
  }
  return {ErrorCode::kInternal, "a state of the engine that is none"};
}

const char* words_of(State state) {
  switch (state) {
    case kWithinBackward:
      return "in its own backward (the call comes from a hook)";
    case kBatchFailed:
      return "after a failed step of a pipeline";
    case kBatchRuns:
      return "in a step of a pipeline";
    case kIsPipeline:
      return "the engine of a pipeline";
    case kTorn:
      return "left with undefined parameters (an update failed partway)";
    case kTakenOver:
      return "replaced by a newer engine of the same module";
    case kEvaluationWeights:
      return "after `eval()`, with other weights than it trains";
    case kBetweenPasses:
      return "between two passes of a step";
    case kWriteGuard:
      return "under a `zero::GatheredParameters` guard with `write_from`";
    case kReadGuard:
      return "under a guard without `write_from`, at ZeRO stage 3";
    case kNoSync:
      return "inside `no_sync()`";
    case kNoOptimizer:
      return "without an optimizer";
    case kMicroBatch:
      return "between `forward()` and `step()`";
    case kGradients:
      return "between `backward()` and `step()`";
    case kCount:
      break;
  }
  return "";
}

}  // namespace

bool is_in(const EngineBase::Impl& impl, State state) {
  switch (state) {
    case kWithinBackward:
      return impl.reducer && impl.reducer->is_in_backward() && torch::autograd::get_current_graph_task_id() >= 0;
    case kBatchFailed:
      return impl.driven.failed_step > 0;
    case kBatchRuns:
      return impl.driven.call != nullptr;
    case kIsPipeline:
      return impl.driven.is_exclusive;
    case kTorn:
      return !impl.progress.is_whole();
    case kTakenOver:
      return impl.ownership && !impl.ownership->lost().empty();
    case kEvaluationWeights:
      return impl.updater.evaluation().are_in_use();
    case kBetweenPasses:
      return impl.passes.earlier && impl.progress.is_whole();
    case kWriteGuard:
      return !impl.guards.writing.empty();
    case kReadGuard:
      return !impl.store.held().empty();
    case kNoSync:
      return impl.passes.no_sync;
    case kNoOptimizer:
      return !impl.reducer;
    case kMicroBatch:
      return impl.progress.holds_micro_batch();
    case kGradients:
      return impl.progress.has_backwarded();
    case kCount:
      break;
  }
  return false;
}

bool refuses(State state, Call call) { return (row(call).refused & bit(state)) != 0; }

void require(const EngineBase::Impl& impl, Call call) {
  for (uint8_t s = 0; s < static_cast<uint8_t>(kCount); ++s)
    if (const auto state = static_cast<State>(s); refuses(state, call) && is_in(impl, state)) throw refusal(impl, state, call);
}

std::string table() {
  std::string text = "| the engine is | calls that are refused |\n|---|---|\n";
  for (uint8_t s = 0; s < static_cast<uint8_t>(kCount); ++s) {
    const auto state = static_cast<State>(s);
    std::string calls;
    for (const CallRow& each : kRows) {
      const std::string name = formatted("`{}`", each.name);
      if (refuses(state, each.call) && calls.find(name) == std::string::npos) calls += (calls.empty() ? "" : ", ") + name;
    }
    text += formatted("| {} | {} |\n", words_of(state), calls);
  }
  return text;
}

}  // namespace gate

const char* name_of(Call call) { return gate::row(call).name; }

Entered::Entered(EngineBase::Impl& impl, Call call) : thread_(impl.calls, name_of(call)) { gate::require(impl, call); }

}  // namespace gannet
