// A part of a model whose backward runs on a thread of its own, as autograd runs all of it on a device: LibTorch takes its
// thread's state along, and what is counted beside that state stays behind.
#pragma once

#include <ATen/ThreadLocalState.h>
#include <torch/torch.h>

#include <exception>
#include <functional>
#include <thread>

namespace gannet::test {

using Block = std::function<at::Tensor(const at::Tensor&)>;

// The block's backward runs where `on_thread` says, in the middle of that of its caller.
struct Apart : torch::autograd::Function<Apart> {
  struct Kept : torch::CustomClassHolder {
    at::Tensor in, out;
    bool on_thread;
  };
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const Block& block, bool on_thread) {
    const at::AutoGradMode grad(true);
    const auto kept = c10::make_intrusive<Kept>();
    kept->in = x.detach().requires_grad_();
    kept->out = block(kept->in);
    kept->on_thread = on_thread;
    context->saved_data["kept"] = c10::IValue::make_capsule(kept);
    return kept->out.detach();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto kept = c10::static_intrusive_pointer_cast<Kept>(context->saved_data["kept"].toCapsule());
    const auto run = [&] { torch::autograd::backward({kept->out}, {grads[0]}); };
    if (kept->on_thread) {
      const at::ThreadLocalState state;
      std::exception_ptr failed;
      std::thread([&] {
        const at::ThreadLocalStateGuard node(state);
        try {
          run();
        } catch (...) {
          failed = std::current_exception();
        }
      }).join();
      if (failed) std::rethrow_exception(failed);
    } else {
      run();
    }
    return {kept->in.grad(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace gannet::test
