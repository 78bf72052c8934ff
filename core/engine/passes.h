// What forwards and backwards hold between two calls of the engine. Used by the thread that calls the engine, and by autograd's
// thread that ends a scaled loss's backward.
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

/// What ended a pass of a step before the one that step() ends, and what it left.
struct EarlierPasses {
  int64_t micro_batches = 1;        // of each pass
  bool is_perturbed = false;        // perturb() moved the parameters, or was to
  bool has_moved = false;           // and did: the model has the perturbed parameters
  bool has_second = false;          // keep_second_gradient() kept one, or was to
  std::vector<const void*> frozen;  // at perturb(): trained parameters that it did not move
  std::string not_finite;  // the first element that was not, in a pass: nothing was done then, and step() is skipped; "": none
};

struct Passes {
  std::optional<EarlierPasses> earlier;  // of the step in hand; null: its first pass runs
  std::string ended_by;                  // the call that ended the micro-batches of this pass so far; of no other pass
  // The step's loss is known: that of the pass before perturb().
  bool has_loss() const { return earlier && earlier->is_perturbed; }
  // An earlier pass found gradients that were not finite, and did nothing with them.
  bool skips_step() const { return earlier && !earlier->not_finite.empty(); }
  bool training = true;                         // train(), eval()
  bool no_sync = false;                         // inside a NoSync scope: no backward averages over ranks
  bool keeps_user_grads = false;                // the last backward had create_graph: `.grad` is the program's until the next one
  bool loss_was_finite = true;                  // as far as the loss lies in host memory
  std::function<int64_t()> micro_batches_left;  // of the epoch, the one in hand included; null: steps do not end with it

  std::optional<Timers::Scope> forward_timed;
  std::optional<Activations::Forward> activations;   // while a forward runs
  std::optional<at::ScalarType> autocast_dtype;      // null: forward runs as the program wrote it
  std::optional<Autocast> autocast;                  // while a forward runs
  std::optional<control::Watch::Call> forward_call;  // where parameters are gathered: the ranks must be in it together

  // A backward of ours, from backward() or scale() to its end.
  struct Running {
    std::optional<control::Watch::Call> call;
    std::unique_ptr<zero::Interception> armed;  // where it runs on another thread than forward
  };
  std::unique_ptr<Running> running;

  // On the thread that called scale(), to its next call of the engine: what LibTorch takes along into the program's own backward.
  struct ScaleScope {
    std::unique_ptr<c10::DebugInfoGuard> marked;
    std::unique_ptr<zero::Interception> armed;
    uint64_t thread = thread_number();
    ~ScaleScope();
  };
  std::unique_ptr<ScaleScope> scale_scope;
};

// By a room above the engine, which runs a step's micro-batches itself (micro_batch.h).
struct Driven {
  const char* call = nullptr;  // the public call that does; null: none runs
  std::string failure;         // "train_batch() failed in step 3 ...", until a load; "": none
};

}  // namespace gannet
