#include "engine/progress.h"

#include <utility>

#include "base/check.h"
#include "base/format.h"

namespace gannet {

void Progress::check_backward(const std::string& call, bool training) const {
  if (!holds_micro_batch() && training && has_forwarded_)
    throw Error(
        ErrorCode::kOrder,
        formatted("{} was called before the forward() of its micro-batch: this loss is of a micro-batch that has ended, or "
                  "of the module's own forward",
                  call),
        "call engine->forward(...), backward and step in this order for each micro-batch");
  if (!holds_micro_batch())
    throw Error(
        ErrorCode::kOrder,
        training ? formatted("{} was called before forward()", call) : formatted("{} was called in evaluation mode", call),
        training ? "call engine->forward(...) (not the module's own) for each micro-batch" : "call engine->train() first");
}

void Progress::check_step(bool is_pending, const char* call) const {
  if (is_in_backward() || (is_pending && !has_backwarded()))
    throw Error(ErrorCode::kOrder,
                formatted("{}() was called after scale(), but the backward of what it returned has not ended", call),
                formatted("call its backward before {}()", call));
  if (!has_backwarded())
    throw Error(ErrorCode::kOrder,
                formatted("{}() was called {}", call,
                          holds_micro_batch() ? "before backward(), or after zero_grad()" : "before forward() and backward()"),
                formatted("the order of a micro-batch is forward, backward, {}", call));
}

void Progress::end_forward() {
  has_forwarded_ = true;
  if (state_ == State::kIdle) state_ = State::kForwarded;
}

// The state is kIdle if an earlier backward of the micro-batch threw: the next backward abandons it,
// which restarts the step.
void Progress::begin_backward() {
  GANNET_CHECK(state_ != State::kBoundary && state_ != State::kUpdating);
  state_ = State::kBackward;
}

void Progress::end_backward() {
  GANNET_CHECK(state_ != State::kBoundary && state_ != State::kUpdating);
  state_ = State::kBackwarded;
}

void Progress::end_micro_batch() {
  GANNET_CHECK(state_ == State::kBackwarded);
  state_ = State::kIdle;
  ++micro_steps;
  ++micro_in_step;
}

void Progress::begin_boundary() {
  GANNET_CHECK(state_ == State::kBackwarded);
  state_ = State::kBoundary;
}

void Progress::begin_update() {
  GANNET_CHECK(state_ == State::kBoundary);
  state_ = State::kUpdating;
}

void Progress::end_update() {
  GANNET_CHECK(state_ == State::kUpdating);
  state_ = State::kBoundary;
}

void Progress::end_pass() {
  GANNET_CHECK(state_ == State::kBoundary);
  state_ = State::kIdle;
  ++micro_steps;
  micro_in_step = 0;
}

void Progress::end_step(int64_t samples) {
  GANNET_CHECK(state_ == State::kBoundary);
  state_ = State::kIdle;
  ++micro_steps;
  ++global_steps;
  micro_in_step = 0;
  global_samples += samples;
}

void Progress::drop_gradients() {
  if (holds_micro_batch()) state_ = State::kForwarded;
  micro_in_step = 0;
}

void Progress::restart_step() noexcept {
  state_ = State::kIdle;
  micro_in_step = 0;
  ++caught_errors;
}

void Progress::count_applied() {
  ++applied_steps;
  consecutive_skips = 0;
}

void Progress::count_skipped() {
  ++skipped_steps;
  ++consecutive_skips;
}

std::optional<int64_t> Progress::take_accumulation() {
  if (accumulation_from_next == 0) return std::nullopt;
  return std::exchange(accumulation_from_next, 0);
}

}  // namespace gannet
