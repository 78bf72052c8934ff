#include "engine/micro_batch.h"

#include <ATen/ops/full.h>

#include <exception>
#include <utility>

#include "base/format.h"
#include "engine/backward.h"
#include "engine/forward.h"
#include "engine/gate.h"
#include "engine/operator_errors.h"

namespace gannet {
namespace {

// A call of the engine by the driver itself. The gate would refuse the same call by the program.
class OwnCall {
 public:
  explicit OwnCall(EngineBase::Impl& impl) : impl_(impl), call_(std::exchange(impl.driven.call, nullptr)) {}
  ~OwnCall() { impl_.driven.call = call_; }
  OwnCall(const OwnCall&) = delete;

 private:
  EngineBase::Impl& impl_;
  const char* const call_;
};

}  // namespace

MicroBatches::MicroBatches(EngineBase& engine)
    : engine_(engine), exceptions_(std::uncaught_exceptions()), step_(engine.global_steps()) {
  EngineBase::Impl& impl = engine.impl();
  const char* const call = name_of(Call::kTrainBatch);
  Calls::Entered entered(impl.calls, call);
  gate::require(impl, Call::kTrainBatch);
  if (!impl.passes.training)
    throw Error(ErrorCode::kOrder, formatted("{}() was called in evaluation mode", call), "call engine->train() first");
  give_up_backward(impl);
  if (impl.progress.holds_micro_batch() || impl.progress.has_begun_step())
    throw Error(ErrorCode::kOrder, formatted("{}() was called in the middle of step {}", call, step_ + 1),
                "end the step with step(), or drop its gradients with zero_grad()");
  impl.driven.call = call;
  entered.keep();  // until the scope ends
}

MicroBatches::~MicroBatches() {
  EngineBase::Impl& impl = engine_.impl();
  // What fails after the step was taken, such as its report, leaves nothing in the middle.
  if (std::uncaught_exceptions() > exceptions_ && engine_.global_steps() == step_) abandon();
  impl.driven.call = nullptr;
  impl.calls.leave();
}

int64_t MicroBatches::count() const { return engine_.impl().micro_batches_of_step(); }

at::Tensor MicroBatches::loss_gradient(const at::Tensor& loss) const {
  return at::full(loss.sizes(), seed(engine_.impl(), {}), loss.options().requires_grad(false));
}

void MicroBatches::take_loss(const at::Tensor& loss) { gannet::take_loss(engine_.impl(), loss, {}); }

void MicroBatches::forward(const std::function<void()>& body) {
  EngineBase::Impl& impl = engine_.impl();
  struct Scope {
    explicit Scope(EngineBase::Impl& impl) : impl(impl) {
      const OwnCall own(impl);
      begin_forward(impl);
    }
    ~Scope() { end_forward(impl); }
    EngineBase::Impl& impl;
  };
  try {
    const Scope scope(impl);
    body();
    finish_forward(impl);
  } catch (...) {
    rethrow_from_forward(impl);
  }
}

void MicroBatches::backward(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients, bool retain_graph) {
  EngineBase::Impl& impl = engine_.impl();
  {
    const OwnCall own(impl);
    gate::require(impl, Call::kBackward);
  }
  try {
    Timers::Scope timed(impl.timers, TimedPhase::kBackward);
    run_backward(impl, outputs, gradients, {.reduce = reduces(impl, {}), .retain_graph = retain_graph});
  } catch (...) {
    impl.restart_step();
    rethrow_of_operators(impl, *impl.module, "backward");
  }
}

StepResult MicroBatches::end_micro_batch() {
  const OwnCall own(engine_.impl());
  return engine_.step();
}

control::Facts& MicroBatches::agreed() {
  EngineBase::Impl& impl = engine_.impl();
  return impl.agreed(impl.is_boundary());
}

void MicroBatches::abandon() noexcept {
  EngineBase::Impl& impl = engine_.impl();
  impl.restart_step();
  impl.driven.failed_step = impl.progress.global_steps + 1;
}

}  // namespace gannet
