/// Callbacks of the Trainer are plain structs. The Trainer calls whichever of the following members
/// a struct has.
///
///   struct StopAt {
///     int64_t step;
///     void on_step_end(const gannet::TrainerEvent& event, gannet::TrainerControl& control) {
///       if (event.state.global_step >= step) control.should_training_stop = true;
///     }
///   };
///   gannet::Trainer trainer(model, arguments, {.train_dataset = data, .callbacks = {StopAt{100}}});
///
///   on_init_end  on_train_begin  on_epoch_begin  on_step_begin  on_substep_end  on_pre_optimizer_step  on_optimizer_step
///   on_step_end  on_log  on_evaluate  on_prediction_step  on_save  on_epoch_end  on_train_end
///
/// The order of events is Hugging Face's. Callbacks are called on every rank; a request through
/// `control` on one rank takes effect on all. A callback that has state to restore on resume
/// declares `gannet::Value save() const` and `void load(const gannet::Value&)`.
#pragma once

#include <gannet/trainer_state.h>
#include <gannet/training_arguments.h>

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>

namespace gannet {

class EngineBase;

struct TrainerEvent {
  const TrainingArguments& arguments;
  const TrainerState& state;
  EngineBase* engine;      ///< null in on_init_end
  const Dict& logs;        ///< in on_log: what is logged, timings included
  const Metrics& metrics;  ///< in on_evaluate
};

enum class TrainerEventKind {
  kInitEnd,
  kTrainBegin,
  kEpochBegin,
  kStepBegin,
  kSubstepEnd,
  kPreOptimizerStep,
  kOptimizerStep,
  kStepEnd,
  kLog,
  kEvaluate,
  kPredictionStep,
  kSave,
  kEpochEnd,
  kTrainEnd,
};

namespace detail {

// Every event, with the member that it calls.
#define GANNET_TRAINER_EVENTS(X)              \
  X(kInitEnd, on_init_end)                    \
  X(kTrainBegin, on_train_begin)              \
  X(kEpochBegin, on_epoch_begin)              \
  X(kStepBegin, on_step_begin)                \
  X(kSubstepEnd, on_substep_end)              \
  X(kPreOptimizerStep, on_pre_optimizer_step) \
  X(kOptimizerStep, on_optimizer_step)        \
  X(kStepEnd, on_step_end)                    \
  X(kLog, on_log)                             \
  X(kEvaluate, on_evaluate)                   \
  X(kPredictionStep, on_prediction_step)      \
  X(kSave, on_save)                           \
  X(kEpochEnd, on_epoch_end)                  \
  X(kTrainEnd, on_train_end)

#define GANNET_HAS_EVENT(kind, member)                                                                                 \
  || requires(C& callback, const TrainerEvent& event, TrainerControl& control) { callback.member(event, control); } || \
      requires(C& callback, const TrainerEvent& event) { callback.member(event); }
template <class C>
concept HasSomeEvent = false GANNET_TRAINER_EVENTS(GANNET_HAS_EVENT);
#undef GANNET_HAS_EVENT

template <class C>
void call_callback(C& callback, TrainerEventKind which, const TrainerEvent& event, TrainerControl& control) {
#define GANNET_CALL_EVENT(kind, member)                          \
  case TrainerEventKind::kind:                                   \
    if constexpr (requires { callback.member(event, control); }) \
      callback.member(event, control);                           \
    else if constexpr (requires { callback.member(event); })     \
      callback.member(event);                                    \
    break;
  switch (which) { GANNET_TRAINER_EVENTS(GANNET_CALL_EVENT) }
#undef GANNET_CALL_EVENT
}

// The events that a callback has members for, as bits.
template <class C>
constexpr uint32_t events_of() {
  uint32_t events = 0;
#define GANNET_ADD_EVENT(kind, member)                                                                                  \
  if constexpr (                                                                                                        \
      requires(C& callback, const TrainerEvent& event, TrainerControl& control) { callback.member(event, control); } || \
      requires(C& callback, const TrainerEvent& event) { callback.member(event); })                                     \
    events |= 1u << static_cast<uint32_t>(TrainerEventKind::kind);
  GANNET_TRAINER_EVENTS(GANNET_ADD_EVENT)
#undef GANNET_ADD_EVENT
  return events;
}
#undef GANNET_TRAINER_EVENTS

}  // namespace detail

/// A type-erased callback. It is made from a value, which is copied, or from a std::shared_ptr,
/// which is shared.
class TrainerCallback {
 public:
  template <class C>
    requires detail::HasSomeEvent<C>
  TrainerCallback(C callback) : TrainerCallback(std::make_shared<C>(std::move(callback))) {}
  template <class C>
    requires detail::HasSomeEvent<C>
  TrainerCallback(std::shared_ptr<C> callback) : name_(typeid(C).name()), events_(detail::events_of<C>()) {
    call_ = [callback](TrainerEventKind kind, const TrainerEvent& event, TrainerControl& control) {
      detail::call_callback(*callback, kind, event, control);
    };
    if constexpr (requires {
                    { std::as_const(*callback).save() } -> std::convertible_to<Value>;
                  })
      save_ = [callback] { return Value(std::as_const(*callback).save()); };
    if constexpr (requires(const Value& value) { callback->load(value); })
      load_ = [callback](const Value& value) { callback->load(value); };
  }

  void call(TrainerEventKind kind, const TrainerEvent& event, TrainerControl& control) const { call_(kind, event, control); }
  const std::string& name() const { return name_; }
  bool handles(TrainerEventKind kind) const { return (events_ >> static_cast<uint32_t>(kind) & 1u) != 0; }
  Value save() const { return save_ ? save_() : Value(); }
  void load(const Value& value) const {
    if (load_) load_(value);
  }

 private:
  std::string name_;  // name of the callback's type, the key of its state in checkpoints
  uint32_t events_;   // bits of the kinds that it handles
  std::function<void(TrainerEventKind, const TrainerEvent&, TrainerControl&)> call_;
  std::function<Value()> save_;
  std::function<void(const Value&)> load_;
};

/// Ends training when metric_for_best_model has not improved by more than `threshold` in `patience` evaluations in a row.
struct EarlyStopping {
  int64_t patience = 1;
  double threshold = 0;
  int64_t waited = 0;  ///< evaluations since the last improvement

  void on_train_begin(const TrainerEvent& event, TrainerControl& control) const;  ///< Error(kArgument) if it cannot work
  void on_evaluate(const TrainerEvent& event, TrainerControl& control);
  Value save() const { return Dict{{"waited", waited}}; }
  void load(const Value& value) { waited = value.at("waited").as_int(); }
};

}  // namespace gannet
