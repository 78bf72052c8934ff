// State of forwards and backwards between two calls of the engine. Used by the thread that calls
// the engine, and by autograd's thread that ends the backward of a scaled loss.
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

/// The earlier passes of a step, before the one that step() ends, and what they left.
struct EarlierPasses {
  int64_t micro_batches = 1;        // of each pass
  bool is_perturbed = false;        // perturb() moved the parameters, or would have
  bool has_moved = false;           // it did: the model has the perturbed parameters
  bool has_second = false;          // keep_second_gradient() kept one, or would have
  std::vector<const void*> frozen;  // at perturb(): trained parameters that it did not move
  std::string not_finite;  // the first non-finite element, if a pass found one: it did nothing, and step() is skipped; "": none
};

struct Passes {
  std::optional<EarlierPasses> earlier;  // of the current step; null: its first pass runs
  std::string ended_by;                  // the call that ended the micro-batches of this pass so far
  // The step's loss is already known, from the pass before perturb().
  bool has_loss() const { return earlier && earlier->is_perturbed; }
  // An earlier pass found gradients that were not finite, and did nothing with them.
  bool skips_step() const { return earlier && !earlier->not_finite.empty(); }
  bool training = true;                         // train(), eval()
  bool no_sync = false;                         // inside a NoSync scope: no backward averages over ranks
  bool keeps_user_grads = false;                // the last backward had create_graph: `.grad` is the program's until the next
  bool loss_was_finite = true;                  // checked only if the loss is in host memory
  std::function<int64_t()> micro_batches_left;  // in the epoch, the current one included; null: steps do not end with it

  std::optional<Timers::Scope> forward_timed;
  std::optional<Activations::Forward> activations;   // while a forward runs
  std::optional<at::ScalarType> autocast_dtype;      // null: forward runs as the program wrote it
  std::optional<Autocast> autocast;                  // while a forward runs
  std::optional<control::Watch::Call> forward_call;  // if parameters are gathered: the ranks must be in it together

  // A backward of this engine, from backward() or scale() to its end.
  struct RunningBackward {
    std::optional<control::Watch::Call> call;
    std::unique_ptr<zero::Interception> armed;  // if it runs on another thread than forward
  };
  std::unique_ptr<RunningBackward> running;

  // Set on the thread that called scale(), until its next call of the engine. LibTorch carries it
  // into the program's own backward.
  struct ScaleScope {
    std::unique_ptr<c10::DebugInfoGuard> marked;
    std::unique_ptr<zero::Interception> armed;
    uint64_t thread = thread_number();
    ~ScaleScope();
  };
  std::unique_ptr<ScaleScope> scale_scope;
};

// State of a room above the engine that runs a step's micro-batches itself (micro_batch.h).
struct DriverState {
  const char* call = nullptr;  // the public call that runs them; null: none
  std::string failure;         // "train_batch() failed in step 3 ...", until a load; "": none
};

}  // namespace gannet
