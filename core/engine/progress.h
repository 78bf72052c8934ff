// The progress of training: the state of the micro-batch and of the step, and the counters. A value
// type: copy it, compare it, put its counters into a checkpoint.
//
//   kIdle --end_forward--> kForwarded --begin_backward--> kBackward --end_backward--> kBackwarded
//                             (a second backward of the same micro-batch begins in kBackwarded)
//   kBackwarded --end_micro_batch--> kIdle                                            between two boundaries
//   kBackwarded --begin_boundary--> kBoundary --begin_update--> kUpdating --end_update--> kBoundary --end_step--> kIdle
//   kBoundary --end_pass--> kIdle                                                     perturb(), keep_second_gradient()
//   any of them --restart_step--> kIdle                                               after an error before the update
//   any of them --tear--> kTorn --mend--> the former state                            parameter values undefined, until a load
//
// A call by the program in the wrong order is Error(kOrder), from the check_ functions. A wrong
// transition by the engine is an internal error. Progress is used by the thread that calls the
// engine, and by autograd's thread that begins or ends a backward.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gannet {

class Progress {
 public:
  enum class State {
    kIdle,        // no micro-batch is held: forward is next
    kForwarded,   // a training forward has ended
    kBackward,    // a backward of this engine is running
    kBackwarded,  // at least one backward of the micro-batch has ended, and none is running
    kBoundary,    // inside step() at a boundary, with valid parameters
    kUpdating,    // inside step(), while parameters are changed and published
    kTorn,        // an update, its publication or a load failed partway: parameter values are undefined
  };
  State state() const { return torn_.empty() ? state_ : State::kTorn; }
  bool holds_micro_batch() const {
    return state_ == State::kForwarded || state_ == State::kBackward || state_ == State::kBackwarded;
  }
  bool is_in_backward() const { return state_ == State::kBackward; }
  bool has_backwarded() const { return state_ == State::kBackwarded; }
  bool is_updating() const { return state_ == State::kUpdating; }
  bool has_begun_step() const { return micro_in_step > 0 || has_backwarded(); }
  /// Whether the current micro-batch is the last of its step.
  bool is_boundary(int64_t accumulation_steps) const {
    return forced_boundary ? *forced_boundary : micro_in_step + 1 >= accumulation_steps;
  }

  /// The reason why parameter values are undefined; "" while they are valid.
  const std::string& torn() const { return torn_; }
  bool is_whole() const { return torn_.empty(); }

  // ---- checks for calls in the wrong order: Error(kOrder)
  /// Called before backward() or scale(). `training`: false after eval().
  void check_backward(const std::string& call, bool training) const;
  /// Called before step() or another call that ends a pass. `is_pending`: a loss that scale()
  /// returned has not had its backward.
  void check_step(bool is_pending, const char* call = "step") const;

  // ---- transitions
  void end_forward();  // called only in training; a second forward before backward belongs to the same micro-batch
  void begin_backward();
  void end_backward();
  void end_micro_batch();  // between two boundaries
  void begin_boundary();
  void begin_update();
  void end_update();
  void end_pass();  // at a boundary that is not the step's last: the same micro-batches are run again
  /// Counts the step. `samples`: the samples of the step on all ranks.
  void end_step(int64_t samples);
  /// The program dropped the gradients so far. The last forward's loss may still run its
  /// backward.
  void drop_gradients();
  /// Called after an error. The next micro-batch is the first of its step.
  void restart_step() noexcept;
  void tear(std::string why) { torn_ = std::move(why); }
  void mend() { torn_.clear(); }
  /// Count the outcome of a boundary.
  void count_applied();
  void count_skipped();

  /// Returns the accumulation steps of the step that begins now; nullopt: unchanged.
  std::optional<int64_t> take_accumulation();

  // ---- counters; a load sets them
  int64_t micro_in_step = 0;      // micro-batches that ended since the last boundary
  int64_t micro_steps = 0;        // micro-batches that ended
  int64_t global_steps = 0;       // boundaries passed, including skipped ones
  int64_t applied_steps = 0;      // updates of the optimizer
  int64_t skipped_steps = 0;      // boundaries without an update
  int64_t consecutive_skips = 0;  // boundaries without an update since the last update
  int64_t global_samples = 0;     // samples on all ranks in the steps that have ended
  int64_t caught_errors = 0;      // errors of forward, backward and step since the last load
  // ---- results of the last boundary
  bool last_step_applied = false;
  std::optional<double> grad_norm;  // norm of the averaged, unscaled gradient before clipping; nullopt if the step was skipped
  // ---- requests by the program
  std::optional<bool> forced_boundary;  // as set by set_gradient_accumulation_boundary()
  int64_t accumulation_from_next = 0;   // gradient_accumulation_steps of the next step; 0: unchanged

  bool operator==(const Progress&) const = default;

 private:
  bool has_forwarded_ = false;  // a training forward of this micro-batch or of an earlier one has ended
  State state_ = State::kIdle;  // kept while torn: a load of only weights keeps the micro-batch
  std::string torn_;
};

}  // namespace gannet
