#include "engine/micro_batch.h"

#include <ATen/ops/full.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <chrono>
#include <exception>
#include <utility>

#include "base/format.h"
#include "control/world.h"
#include "engine/backward.h"
#include "engine/forward.h"
#include "engine/gate.h"
#include "engine/operator_errors.h"

namespace gannet {
namespace {

// A call that the driver itself makes to the engine. The gate would refuse the program's own call.
class OwnCall {
 public:
  explicit OwnCall(EngineBase::Impl& impl)
      : impl_(impl),
        call_(std::exchange(impl.driven.call, nullptr)),
        is_exclusive_(std::exchange(impl.driven.is_exclusive, false)) {}
  ~OwnCall() {
    impl_.driven.call = call_;
    impl_.driven.is_exclusive = is_exclusive_;
  }
  OwnCall(const OwnCall&) = delete;

 private:
  EngineBase::Impl& impl_;
  const char* const call_;
  const bool is_exclusive_;
};

// Runs `body` as a forward of the engine.
void run_forward(EngineBase::Impl& impl, const std::function<void()>& body) {
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

std::pair<torch::autograd::edge_list, torch::autograd::variable_list> parts_of(const std::vector<MicroBatches::Root>& roots) {
  std::pair<torch::autograd::edge_list, torch::autograd::variable_list> parts;
  for (const auto& [edge, gradient] : roots) {
    parts.first.push_back(edge);
    parts.second.push_back(gradient);
  }
  return parts;
}

// `is_last`: whether this is the step's last pass that produces gradients.
BackwardPass pass_of(const EngineBase::Impl& impl, bool is_last) {
  return {.reduce = reduces(impl, {}) && (is_last || impl.store.shards_gradients())};
}

}  // namespace

RankContext& context_of(EngineBase& engine) { return engine.impl(); }

void train_by_driver_alone(EngineBase& engine) { engine.impl().driven.is_exclusive = true; }

void evaluate_forward(EngineBase& engine, const std::function<void()>& body) { run_forward(engine.impl(), body); }

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
  if (std::uncaught_exceptions() > exceptions_ && is_in_the_middle_) abandon();
  impl.driven.call = nullptr;
  impl.calls.leave();
}

int64_t MicroBatches::count() const { return engine_.impl().micro_batches_of_step(); }

at::Tensor MicroBatches::loss_gradient(const at::Tensor& loss) const {
  return at::full(loss.sizes(), seed(engine_.impl(), {}), loss.options().requires_grad(false));
}

void MicroBatches::take_loss(const at::Tensor& loss) { note_loss(engine_.impl(), loss, {}); }

void MicroBatches::forward(int64_t micro_batch, const std::function<void()>& body) {
  EngineBase::Impl& impl = engine_.impl();
  is_in_the_middle_ = true;
  run_forward(impl, [&] {
    if (impl.trace) impl.trace->at(step_ + 1, micro_batch);
    body();
  });
}

torch::autograd::Edge MicroBatches::edge_of(const at::Tensor& output) { return torch::autograd::impl::gradient_edge(output); }

// `pass`: a backward, or one of its two passes. `name`: an extra span in the trace; null: none.
void MicroBatches::run(int64_t micro_batch, const char* name, const std::function<void()>& pass) {
  EngineBase::Impl& impl = engine_.impl();
  {
    const OwnCall own(impl);
    gate::require(impl, Call::kBackward);
  }
  if (impl.trace) impl.trace->at(step_ + 1, micro_batch);
  try {
    Timers::Scope timed(impl.timers, TimedPhase::kBackward);
    const auto began = std::chrono::steady_clock::now();
    pass();
    if (name && impl.trace && impl.trace->is_on()) impl.trace->span(name, began, std::chrono::steady_clock::now());
  } catch (...) {
    impl.restart_step();
    rethrow_of_operators(impl, *impl.module, "backward");
  }
}

void MicroBatches::backward(int64_t micro_batch, const std::vector<Root>& roots, bool is_last) {
  auto [edges, gradients] = parts_of(roots);
  run(micro_batch, nullptr, [&] { run_backward(engine_.impl(), edges, std::move(gradients), pass_of(engine_.impl(), is_last)); });
}

std::vector<at::Tensor> MicroBatches::input_pass(int64_t micro_batch, const std::vector<Root>& roots,
                                                 const std::vector<torch::autograd::Edge>& inputs, SplitBackward& split) {
  const auto [edges, gradients] = parts_of(roots);
  std::vector<at::Tensor> of_inputs;
  run(micro_batch, "backward of inputs", [&] { of_inputs = run_input_pass(engine_.impl(), edges, gradients, inputs, split); });
  return of_inputs;
}

void MicroBatches::weight_pass(int64_t micro_batch, SplitBackward split, bool is_last) {
  run(micro_batch, "backward of weights",
      [&] { run_weight_pass(engine_.impl(), std::move(split), pass_of(engine_.impl(), is_last)); });
}

StepResult MicroBatches::end_micro_batch() {
  EngineBase::Impl& impl = engine_.impl();
  const OwnCall own(impl);
  // All ranks meet at the boundary: from there on, an error is raised on all of them.
  if (impl.is_boundary()) is_in_the_middle_ = false;
  return engine_.step();
}

void MicroBatches::agree() {
  EngineBase::Impl& impl = engine_.impl();
  impl.audit();
  auto call = impl.process_group->world()->enter(*impl.host_group, name_of(Call::kTrainBatch), step_ + 1,
                                                 impl.agreed(impl.is_boundary()));
}

void MicroBatches::abandon() noexcept {
  EngineBase::Impl& impl = engine_.impl();
  impl.restart_step();
  impl.driven.failed_step = impl.progress.global_steps + 1;
}

}  // namespace gannet
