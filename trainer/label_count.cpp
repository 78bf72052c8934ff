// Counts labels. A mean over no labels is NaN: the first update without a label causes a warning,
// an epoch without one causes an error.
#include <gannet/error.h>
#include <gannet/log.h>
#include <gannet/trainer_base.h>

namespace gannet {
namespace {

constexpr const char* kUsualCause =
    "a collator that masks everything, or prompts that fill the whole length, are the usual cause: print the target of a sample";

}  // namespace

// `total` is the number of labels in all ranks' micro-batches.
void TrainerBase::count_labels_of_update(double total, int64_t micro_batches) {
  labels_in_epoch_ += total;
  if (total > 0 || has_warned_of_labels_) return;
  has_warned_of_labels_ = true;
  const double samples = over_ranks(static_cast<double>(samples_read()));
  if (is_first())
    log_warning("update " + std::to_string(state_.global_step + 1) + " has no label that counts: all labels of its " +
                std::to_string(static_cast<int64_t>(samples)) + " samples (" + std::to_string(micro_batches) +
                " micro-batches) are -100, so that it has no loss and its gradients are zero; " + kUsualCause +
                " (further ones are not reported)");
}

// Reaches the same result on all ranks. An epoch that a resumed run entered partway, or that
// max_steps cut short, may have its labels in the part that was not seen.
void TrainerBase::check_labels_of_epoch(bool is_whole) const {
  const bool is_run = state_.global_step >= state_.max_steps && losses_ + losses_since_log_ == 0;
  if (labels_in_epoch_ > 0 || micro_in_epoch_ == 0 || !((is_whole && is_epoch_seen_from_start_) || is_run)) return;
  throw Error(ErrorCode::kArgument,
              std::string("no label of train_dataset counts: in ") + (is_whole ? "a whole epoch" : "the whole run") +
                  ", up to update " + std::to_string(state_.global_step) + ", all of them are -100",
              kUsualCause);
}

}  // namespace gannet
