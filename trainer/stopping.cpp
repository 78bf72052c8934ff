// What an exception and a signal end: the ranks that did not throw are not left waiting, and an evaluation outside of training
// stops after the batch at hand.
#include <gannet/error.h>
#include <gannet/log.h>
#include <gannet/trainer_base.h>

#include <cstdlib>
#include <exception>

#include "exception_text.h"

namespace gannet {

// An exception may leave `call` on this rank alone, and the program may catch it: whoever waits for this rank gets its text.
void TrainerBase::report_failure(const char* call) noexcept {
  try {
    if (engine_)
      engine_->process_group()->report_failure(call, exception_text(std::current_exception()));
    else if (is_distributed_initialized())
      init_distributed()->report_failure(call, exception_text(std::current_exception()));
  } catch (const std::exception&) {  // the exception at hand is the news
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
  if (is_thrown_out) {  // by the program's own loop; by a step it is reported already
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

// Over where it is so on all ranks, or where a signal came to one of them. Within train() the signal waits for the update, which
// is saved; one that train() has answered, in a program that continues, does not end what that program evaluates.
bool TrainerBase::some_rank_evaluates(bool counts) {
  const bool has_signal = !is_begun_ && !output_.stopped && arguments_.stop && arguments_.stop->requested();
  const auto means = engine_->mean({counts ? 1.0 : 0.0, has_signal ? 1.0 : 0.0});
  is_evaluation_stopped_ = means[0] > 0 && means[1] > 0;
  return means[0] > 0 && !is_evaluation_stopped_;
}

void TrainerBase::stop_evaluation(const std::string& done) {
  const std::string sentence = "the evaluation was ended by a signal after " + done + ": it has no result";
  if (!exit_when_stopped_) throw Error(ErrorCode::kStopped, sentence);
  if (is_first()) log_info(sentence);
  exit_after_stop();
}

}  // namespace gannet
