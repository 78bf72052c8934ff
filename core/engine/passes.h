// The state of forwards and backwards between two calls of the engine. Used by the thread that
// calls the engine, and by autograd's thread that begins and ends the backward of a scaled loss.
#pragma once

#include <c10/util/ThreadLocalDebugInfo.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "control/watch.h"
#include "engine/activations.h"
#include "observe/timers.h"
#include "params/interception.h"
#include "tensor/autocast.h"

namespace gannet {

/// The earlier passes of a step, before the one that step() ends, and their results.
struct EarlierPasses {
  int64_t micro_batches = 1;        // in each pass
  bool is_perturbed = false;        // perturb() moved the parameters, or would have, except for `not_finite`
  bool has_moved = false;           // perturb() did move them: the model has the perturbed parameters
  bool has_second = false;          // keep_second_gradient() kept a gradient, or would have, except for `not_finite`
  std::vector<const void*> frozen;  // trained parameters that were frozen at perturb(), which did not move them
  std::string not_finite;  // the first non-finite element, if a pass found one and did nothing; step() is skipped; "": none
};

struct Passes {
  std::optional<EarlierPasses> earlier;  // the current step's earlier passes; null: first pass
  std::string ended_by;                  // the call that ended the micro-batches of this pass so far
  // The step's loss is already known, from the pass before perturb().
  bool has_loss() const { return earlier && earlier->is_perturbed; }
  // An earlier pass found gradients that were not finite, and did nothing with them.
  bool skips_step() const { return earlier && !earlier->not_finite.empty(); }
  bool training = true;                         // set by train() and eval()
  bool no_sync = false;                         // inside a NoSync scope: no backward averages over ranks
  bool keeps_user_grads = false;                // the last backward had create_graph: `.grad` is the program's until the next
  bool loss_was_finite = true;                  // each loss of the step so far, if losses are in host memory
  std::function<int64_t()> micro_batches_left;  // in the epoch, including the current one; null: steps do not end with the epoch

  std::optional<Timers::Scope> forward_timed;
  std::optional<Activations::Forward> activations;   // while a forward runs
  std::optional<at::ScalarType> autocast_dtype;      // null: forward runs as the program wrote it
  std::optional<Autocast> autocast;                  // while a forward runs
  std::optional<control::Watch::Call> forward_call;  // set if parameters are gathered: the ranks must be in the call together

  // A backward of this engine, from backward() or scale() to its end.
  struct RunningBackward {
    std::optional<control::Watch::Call> call;
    std::unique_ptr<zero::Interception> armed;  // for a backward on a different thread than forward
  };
  std::unique_ptr<RunningBackward> running;

  // Set on the thread that called scale(), until the next step(), backward() or zero_grad(). LibTorch
  // carries it into the program's own backward.
  struct ScaleScope {
    std::unique_ptr<c10::DebugInfoGuard> marked;
    std::unique_ptr<zero::Interception> armed;
    uint64_t thread = thread_number();
    ~ScaleScope();
  };
  std::unique_ptr<ScaleScope> scale_scope;
};

// The state of a driver of the engine that runs a step's micro-batches itself (micro_batch.h).
struct DriverState {
  const char* call = nullptr;  // the public call that runs the micro-batches; null: none
  int64_t failed_step = 0;     // the step in which it failed, until a load; 0: none did
  bool is_exclusive = false;   // the program trains only through the driver
};

}  // namespace gannet
