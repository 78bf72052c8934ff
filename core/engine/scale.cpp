// EngineBase::scale(): a backward that the program calls itself, but that belongs to the engine.
//
// The result of scale() has one of the engine's nodes as its root. That node is the first of its
// graph to run: it begins the engine's backward, and a callback of that graph ends it. The mark
// that makes gradients the engine's (reducer.h) is on the thread from scale() to the next step(),
// backward() or zero_grad(), because LibTorch captures a thread's state when a backward begins,
// before any node runs.
#include <gannet/engine.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>

#include "engine/backward.h"
#include "engine/gate.h"
#include "engine/impl.h"

namespace gannet {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct BackwardTicket : torch::CustomClassHolder {
  EngineReference engine;
  BackwardOptions options;
  at::Tensor loss;  // detached
};

EngineBase::Impl& alive(const std::shared_ptr<void>& engine) {
  if (!engine)
    throw Error(ErrorCode::kOrder, "a loss that scale() returned was used after its engine had ended",
                "call its backward while the engine lives");
  return *static_cast<EngineBase::Impl*>(engine.get());
}

struct ScaleRoot : torch::autograd::Function<ScaleRoot> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& loss, double factor,
                            const c10::intrusive_ptr<BackwardTicket>& ticket) {
    context->saved_data["factor"] = factor;
    context->saved_data["ticket"] = c10::IValue::make_capsule(ticket);
    return loss.mul(factor);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto ticket = c10::static_intrusive_pointer_cast<BackwardTicket>(context->saved_data["ticket"].toCapsule());
    const auto held = ticket->engine.lock();
    EngineBase::Impl& impl = alive(held);
    if (!impl.passes.running)
      throw Error(ErrorCode::kOrder,
                  "the loss that scale() returned has been given up: step() or zero_grad() came before its backward",
                  "call scale() again in the micro-batch whose backward it is");
    if (!impl.progress.is_in_backward()) {
      const BackwardOptions& options = ticket->options;
      take_loss(impl, ticket->loss, options);
      begin_backward(impl, {reduces(impl, options), options.retain_graph, options.create_graph}, /*is_marked=*/true);
      torch::autograd::Engine::get_default_engine().queue_callback([engine = ticket->engine] {
        const auto held = engine.lock();
        EngineBase::Impl& impl = alive(held);
        try {
          end_backward(impl);
        } catch (...) {
          impl.restart_step();
          throw;
        }
      });
    }
    return {grads[0].mul(context->saved_data["factor"].toDouble()), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

// A guard that ends on another thread would restore its own thread's state there. Such a guard is
// leaked instead, which costs a few bytes.
Passes::ScaleScope::~ScaleScope() {
  if (thread != thread_number()) static_cast<void>(marked.release());
}

at::Tensor EngineBase::scale(const at::Tensor& loss, const BackwardOptions& options) {
  Impl& impl = *impl_;
  const Entered entered(impl, Call::kScale);
  check_loss(impl, loss, "scale");
  if (impl.progress.is_in_backward()) impl.restart_step();  // the previous loss's backward threw an exception
  if (!impl.passes.running) {
    impl.passes.running = std::make_unique<Passes::RunningBackward>();
    impl.passes.scale_scope.reset();
    impl.passes.scale_scope = std::make_unique<Passes::ScaleScope>();
    impl.passes.scale_scope->marked = std::make_unique<c10::DebugInfoGuard>(kBackwardKind, impl.reducer->mark());
    impl.passes.scale_scope->armed = impl.store.arm();
  }
  const auto ticket = c10::make_intrusive<BackwardTicket>();
  ticket->engine = impl.self;
  ticket->options = options;
  ticket->loss = loss.detach();
  return ScaleRoot::apply(loss, seed(impl, options), ticket);
}

}  // namespace gannet
