// Rows: blocks that are computed again in backward, whose gradients arrive several times.
#include "guest/trainer.h"

namespace {

using namespace guest;

// Recomputes its block in backward, by a backward inside the backward, as re-entrant checkpointing does.
struct Reentrant : torch::autograd::Function<Reentrant> {
  static std::function<at::Tensor(const at::Tensor&)>& block() {  // backward may have a thread of its own
    static std::function<at::Tensor(const at::Tensor&)> one;
    return one;
  }
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const std::function<at::Tensor(const at::Tensor&)>& body) {
    context->save_for_backward({x});
    block() = body;
    return body(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    torch::AutoGradMode grad(true);
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_(true);
    const at::Tensor out = block()(x);
    out.backward(grads[0]);
    return {x.grad(), at::Tensor()};
  }
};

template <int kUses>
struct Repeats : Net {
  Repeats() { block = register_module("block", torch::nn::Linear(16, 16)); }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) override {
    at::Tensor h = features(x);
    for (int i = 0; i < uses; ++i)
      h = Reentrant::apply(
          h, std::function<at::Tensor(const at::Tensor&)>([this](const at::Tensor& in) { return torch::tanh(block(in)); }));
    return torch::mse_loss(second(h).to(y.scalar_type()), y);
  }
  int uses = kUses;
  torch::nn::Linear block{nullptr};
};

ROW(a_block_recomputed_once, "") { side.trainer(std::static_pointer_cast<Model>(make<Repeats<1>>(1)))->train(4); }
ROW(a_block_recomputed_three_times, "") { side.trainer(std::static_pointer_cast<Model>(make<Repeats<3>>(1)))->train(4); }
ROW(a_block_recomputed_more_often_later, "") {
  auto model = make<Repeats<1>>(1);
  auto t = side.trainer(model, {.accumulation = 2});
  t->train(2);
  model->uses = 3;
  t->train(2);
  model->uses = 2;
  t->train(2);
}

// Its block is also used in front of all other layers: backward comes to that use when every parameter has had a gradient.
struct RepeatsInFront : Repeats<1> {
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) override {
    if (!is_repeated) return Repeats<1>::forward(x, y);
    const std::function<at::Tensor(const at::Tensor&)> body = [this](const at::Tensor& in) { return torch::tanh(block(in)); };
    const at::Tensor start = at::ones({x.size(0), 16}, first->weight.options().requires_grad(false)).requires_grad_(true);
    const at::Tensor front = Reentrant::apply(start, body);
    const at::Tensor h = Reentrant::apply(features(x), body);
    return torch::mse_loss(second(h + front).to(y.scalar_type()), y);
  }
  bool is_repeated = true;
};
ROW(a_block_recomputed_behind_all_gradients, "") {
  side.trainer(std::static_pointer_cast<Model>(make<RepeatsInFront>(1)))->train(4);
}
ROW(a_block_recomputed_behind_all_gradients_later, "") {
  auto model = make<RepeatsInFront>(1);
  auto t = side.trainer(model);
  model->is_repeated = false;
  t->train(2);
  model->is_repeated = true;
  t->train(2);
}

}  // namespace
