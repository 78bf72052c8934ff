// Handles exceptions and signals: ranks that did not throw are not left waiting, and an evaluation
// outside of training stops after the current batch.
#include <gannet/error.h>
#include <gannet/log.h>
#include <gannet/trainer_base.h>

#include <cstdlib>
#include <exception>

#include "exception_text.h"

namespace gannet {

// An exception may leave `call` on this rank only, and the program may catch it. Ranks that wait
// for this rank get the exception's text.
void TrainerBase::report_failure(const char* call) noexcept {
  try {
    if (engine_)
      engine_->process_group()->report_failure(call, exception_text(std::current_exception()));
    else if (is_distributed_initialized())
      init_distributed()->report_failure(call, exception_text(std::current_exception()));
  } catch (const std::exception&) {  // the current exception matters more
  }
}

void TrainerBase::start_steps() {
  try {
    start();
  } catch (...) {
    is_begun_ = false;
    report_failure("steps()");
    throw;
  }
}

bool TrainerBase::advance_steps() {
  try {
    return advance();
  } catch (...) {
    is_begun_ = false;
    report_failure("steps()");
    throw;
  }
}

void TrainerBase::end_steps(bool is_thrown_out) {
  if (is_thrown_out) {  // an exception from the program's own loop; an exception from a step is already reported
    if (is_begun_) report_failure("steps()");
    is_begun_ = false;
    return;
  }
  try {
    finish();
  } catch (...) {
    report_failure("steps()");
    throw;
  }
}

void TrainerBase::exit_after_stop() {
  engine_ = nullptr;
  release_engine();
  std::exit(kStoppedExitCode);
}

// An evaluation ends when all ranks are done, or when one rank got a signal. Within train() a
// signal waits until the update is done and saved. A signal that already stopped train() does not
// end the program's later evaluations.
bool TrainerBase::some_rank_evaluates(bool counts) {
  const bool has_signal = !is_begun_ && !output_.stopped && arguments_.stop && arguments_.stop->requested();
  const auto sums = sum_over_all({counts ? 1.0 : 0.0, has_signal ? 1.0 : 0.0});
  is_evaluation_stopped_ = sums[0] > 0 && sums[1] > 0;
  return sums[0] > 0 && !is_evaluation_stopped_;
}

void TrainerBase::stop_evaluation(const std::string& done) {
  const std::string sentence = "the evaluation was ended by a signal after " + done + ": it has no result";
  if (!exit_when_stopped_) throw Error(ErrorCode::kStopped, sentence);
  if (is_first()) log_info(sentence);
  exit_after_stop();
}

}  // namespace gannet
