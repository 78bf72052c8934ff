// The number of micro-batches in a step, and the handling of leftover ones at an epoch's end.
#include <gannet/data.h>
#include <gannet/log.h>

#include <algorithm>

#include "base/format.h"
#include "engine/impl.h"

namespace gannet {

int64_t EngineBase::Impl::micro_batches_of_step() const {
  if (passes.earlier) return passes.earlier->micro_batches;  // a rerun: the loader is already past this step
  const int64_t all = settings().accumulation_steps;
  if (!passes.micro_batches_left) {
    if (all > 1 && settings().leftover_micro_batches == "step")
      throw Error(ErrorCode::kOrder, "gannet.leftover_micro_batches is step, but the engine does not know where an epoch ends",
                  "give initialize the training_data, or call engine->end_steps_with_epochs_of(loader)");
    return all;
  }
  const int64_t left = std::max<int64_t>(1, passes.micro_batches_left());
  return left >= all ? all : std::min(all, progress.micro_in_step + left);
}

void EngineBase::end_steps_with_epochs(std::function<int64_t()> micro_batches_left) {
  impl_->passes.micro_batches_left = std::move(micro_batches_left);
}
void EngineBase::end_steps_with_epochs_of(std::shared_ptr<ResumableLoader> loader) {
  if (!loader || !loader->micro_batches_left())
    throw Error(
        ErrorCode::kUnsupported,
        "gannet.leftover_micro_batches is step, but the training data are a stream, whose end is known only when it is met",
        "choose carry or drop, give a dataset with random access, or train by gannet::Trainer, which reads ahead");
  end_steps_with_epochs([loader = std::move(loader)] { return loader->micro_batches_left().value(); });
}
std::string EngineBase::leftover_micro_batches() const { return impl_->settings().leftover_micro_batches; }

void EngineBase::announce_leftovers(int64_t micro_batches, int64_t leftover) const {
  const int64_t per_step = impl_->settings().accumulation_steps;
  if (!impl_->is_first() || per_step == 1) return;
  const std::string option = " (gannet.leftover_micro_batches: carry, drop or step)";
  if (leftover > 0)
    log_info(formatted("each epoch leaves out its last {} micro-batches, so that it has a whole number of steps of {}{}",
                       leftover, per_step, option));
  else if (micro_batches > 0 && micro_batches % per_step != 0 && impl_->passes.micro_batches_left)
    log_info(formatted("an epoch has {} micro-batches: its last step has {} of them{}", micro_batches, micro_batches % per_step,
                       option));
  else if (micro_batches > 0 && micro_batches % per_step != 0)
    log_info(
        formatted("an epoch has {} micro-batches, not a multiple of {}: the gradients of the last {} are carried into the next "
                  "epoch's first step{}",
                  micro_batches, per_step, micro_batches % per_step, option));
}

}  // namespace gannet
