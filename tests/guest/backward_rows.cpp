// Rows: whose backward a gradient is of.
#include <thread>

#include "guest/trainer.h"

namespace {

using namespace guest;

// A discriminator on what a generator makes.
struct Generator : Model {
  Generator() { layer = register_module("layer", torch::nn::Linear(8, 8)); }
  at::Tensor make(const at::Tensor& x) { return torch::tanh(layer(x.to(layer->weight.dtype()))); }
  at::Tensor forward(const at::Tensor& x, const at::Tensor&) override {
    const at::Tensor made = make(x);
    return judge ? judge(made) : made.to(at::kFloat).pow(2).mean();
  }
  std::function<at::Tensor(const at::Tensor&)> judge;
  torch::nn::Linear layer{nullptr};
};

struct Gan {
  std::shared_ptr<Net> judge = make<Net>(1);
  std::shared_ptr<Generator> maker = make<Generator>(2);
  std::shared_ptr<Trainer> d, g;
  explicit Gan(Side& side) {
    d = side.trainer(judge);
    g = side.trainer(maker);
    maker->judge = [judge = judge.get()](const at::Tensor& made) {
      const at::Tensor out = judge->second(judge->features(made));
      return out.to(out.scalar_type() == at::kDouble ? at::kDouble : at::kFloat).pow(2).mean();
    };
  }
};

bool trains_whole(const Setting& setting) { return !setting.is_sharded; }

ROW_WHERE(gan_in_the_ordinary_order, "was read or written between backward() and step()", trains_whole) {
  Gan gan(side);
  for (int step = 0; step < 3; ++step) {
    gan.d->backward(gan.d->forward(gan.d->next++));
    gan.g->backward(gan.g->forward(gan.g->next++));
    gan.d->step();
    gan.g->step();
  }
}

ROW_WHERE(gan_with_a_frozen_judge, "", trains_whole) {
  Gan gan(side);
  for (int step = 0; step < 4; ++step) {
    gan.d->backward(gan.d->forward(gan.d->next++));
    for (auto& p : gan.judge->parameters()) p.requires_grad_(false);
    gan.g->backward(gan.g->forward(gan.g->next++));
    for (auto& p : gan.judge->parameters()) p.requires_grad_(true);
    gan.d->step();
    gan.g->step();
  }
}

ROW_WHERE(gan_that_clears_gradients, "", trains_whole) {
  Gan gan(side);
  for (int step = 0; step < 4; ++step) {
    gan.judge->zero_grad();
    gan.d->micro_batch();
    gan.maker->zero_grad();
    gan.g->micro_batch();
  }
  gan.judge->zero_grad();
}

ROW_WHERE(gan_that_sets_gradients_to_zero, "", trains_whole) {
  Gan gan(side);
  for (int step = 0; step < 4; ++step) {
    gan.judge->zero_grad(/*set_to_none=*/false);
    gan.d->micro_batch();
    gan.maker->zero_grad(/*set_to_none=*/false);
    gan.g->micro_batch();
  }
}

ROW(an_auxiliary_backward_before, "found a gradient in `.grad` of 'first.weight'") {
  auto model = make<Net>(1);
  auto t = side.trainer(model);
  const at::Tensor loss = t->forward(t->next++);
  model->features(Trainer::batch(90, 0, 1).first).to(at::kFloat).pow(2).mean().backward();
  t->backward(loss);
  t->step();
}

ROW(an_auxiliary_backward_between, "was read or written between backward() and step()") {
  auto model = make<Net>(1);
  auto t = side.trainer(model);
  const at::Tensor loss = t->forward(t->next++);
  const at::Tensor aux = model->features(Trainer::batch(90, 0, 1).first).to(at::kFloat).pow(2).mean();
  t->backward(loss);
  aux.backward();
  t->step();
}

ROW_WHERE(an_auxiliary_backward_that_is_cleared, "", trains_whole) {
  auto model = make<Net>(1);
  auto t = side.trainer(model);
  for (int step = 0; step < 3; ++step) {
    model->features(Trainer::batch(90, 0, 1).first).to(at::kFloat).pow(2).mean().backward();
    model->zero_grad();
    t->micro_batch();
  }
}

ROW(a_gradient_set_by_hand, "found a gradient in `.grad` of 'first.bias'") {
  auto model = make<Net>(1);
  auto t = side.trainer(model);
  const at::Tensor loss = t->forward(t->next++);
  model->first->bias.mutable_grad() = at::ones_like(model->first->bias).detach();
  t->backward(loss);
  t->step();
}

ROW(a_leftover_that_is_ignored, "found a gradient in `.grad` of 'first.bias'") {
  auto model = make<Net>(1);
  auto t = side.trainer(model);
  t->train(1);
  model->first->bias.mutable_grad() = at::ones_like(model->first->bias).detach();
  try {
    t->train(1);
  } catch (const gannet::Error&) {
  }
  t->train(1);
}

ROW(gradients_cleared_by_the_module, "") {
  auto t = side.trainer();
  for (int step = 0; step < 4; ++step) {
    t->model->zero_grad();
    t->micro_batch();
  }
}

ROW(gradients_cleared_by_the_engine, "") {
  auto t = side.trainer();
  for (int step = 0; step < 4; ++step) {
    t->zero_grad();
    t->micro_batch();
  }
}

ROW(a_penalty_on_the_inputs_gradient, "") {
  struct Penalized : Net {
    at::Tensor forward(const at::Tensor& x, const at::Tensor& y) override {
      const at::Tensor input = x.detach().to(first->weight.dtype()).requires_grad_(true);
      const at::Tensor out = second(features(input)).to(at::kFloat);
      const at::Tensor slope = torch::autograd::grad({out.sum()}, {input}, {}, true, true)[0];
      return torch::mse_loss(out, y.to(at::kFloat)) + 0.1 * slope.to(at::kFloat).pow(2).sum(1).mean();
    }
  };
  side.trainer(std::static_pointer_cast<Model>(make<Penalized>(1)))->train(3);
}

ROW(two_backwards_a_step, "") {
  auto t = side.trainer();
  for (int step = 0; step < 3; ++step) {
    t->backward(t->forward(t->next++));
    t->backward(t->forward(t->next++));
    t->step();
  }
}

ROW(the_sum_of_two_forwards, "") {
  auto t = side.trainer();
  for (int step = 0; step < 3; ++step) {
    const at::Tensor a = t->forward(t->next++), b = t->forward(t->next++);
    t->backward(a + 0.5 * b);
    t->step();
  }
}

ROW(a_scaled_loss, "") {
  auto t = side.trainer();
  for (int step = 0; step < 3; ++step) {
    t->scale(t->forward(t->next++)).backward();
    t->step();
  }
}

ROW(a_scaled_loss_among_others, "") {
  auto t = side.trainer(nullptr, {.accumulation = 2});
  for (int step = 0; step < 3; ++step) {
    t->scale(t->forward(t->next++)).backward();
    t->step();
    t->micro_batch();
  }
}

ROW(several_roots, "") {
  auto t = side.trainer();
  for (int step = 0; step < 3; ++step) {
    const at::Tensor a = t->forward(t->next++), b = t->forward(t->next++);
    torch::autograd::backward({t->scale(a), t->scale(b)}, {});
    t->step();
  }
}

ROW(two_scaled_losses_with_a_forward_between, "") {
  auto t = side.trainer(nullptr, {.accumulation = 2});
  for (int step = 0; step < 3; ++step) {
    t->micro_batch();
    const at::Tensor a = t->scale(t->forward(t->next++)), b = t->scale(t->forward(t->next++));
    torch::autograd::backward({a, b}, {});
    t->step();
  }
}

ROW(a_scaled_loss_that_is_given_up, "") {
  auto t = side.trainer(nullptr, {.accumulation = 2});
  for (int step = 0; step < 3; ++step) {
    t->micro_batch();
    t->scale(t->forward(60));
    t->micro_batch();
  }
}

ROW(gradients_cleared_between_forward_and_backward, "") {
  auto t = side.trainer();
  for (int step = 0; step < 4; ++step) {
    const at::Tensor loss = t->forward(t->next++);
    t->zero_grad();
    t->backward(loss);
    t->step();
  }
}

ROW(a_scaled_loss_without_its_backward, "called after scale()") {
  auto t = side.trainer();
  t->train(1);
  t->scale(t->forward(t->next++));
  t->step();
}

ROW(an_exception_in_a_scaled_backward, "") {
  train_past_a_failing_backward(side, [](Trainer& t) {
    t.scale(t.forward(t.next++)).backward();
    t.step();
  });
}

ROW(a_backward_through_old_values, "modified by an inplace operation") {
  auto t = side.trainer();
  const at::Tensor old = t->forward(t->next++);
  t->micro_batch();
  t->forward(t->next++);
  try {
    t->backward(old);
  } catch (const std::exception& error) {  // LibTorch's own, on both sides
    throw gannet::Error(gannet::ErrorCode::kOrder, error.what());
  }
  t->step();
}

ROW(clipped_by_hand, "") {
  auto t = side.trainer();
  for (int step = 0; step < 3; ++step) {
    t->backward(t->forward(t->next++));
    t->each_gradient([](at::Tensor& gradient) { gradient.clamp_(-0.02, 0.02); });
    t->step();
  }
}

ROW(noise_on_gradients, "") {
  auto t = side.trainer();
  for (int step = 0; step < 3; ++step) {
    t->backward(t->forward(t->next++));
    t->each_gradient([](at::Tensor& gradient) {
      gradient.add_(at::arange(gradient.numel(), gradient.device()).view(gradient.sizes()).to(gradient.scalar_type()), 1e-3);
    });
    t->step();
  }
}

ROW(masked_gradients, "") {
  auto t = side.trainer(nullptr, {.accumulation = 2, .clipping = 0.2});
  for (int step = 0; step < 3; ++step) {
    t->micro_batch();
    t->backward(t->forward(t->next++));
    t->each_gradient([](at::Tensor& gradient) {
      gradient.mul_((at::arange(gradient.numel(), gradient.device()).view(gradient.sizes()) % 3 != 0).to(gradient.scalar_type()));
    });
    t->step();
  }
}

ROW(a_graph_of_gradients, "") {
  auto t = side.trainer();
  for (int step = 0; step < 3; ++step) {
    t->backward(t->forward(t->next++), /*create_graph=*/true);
    t->step();
  }
}

ROW(backward_on_another_thread, "") {
  auto t = side.trainer();
  for (int step = 0; step < 3; ++step) {
    const at::Tensor loss = t->forward(t->next++);
    std::exception_ptr error;
    std::thread([&] {
      try {
        t->backward(loss);
      } catch (...) {
        error = std::current_exception();
      }
    }).join();
    if (error) std::rethrow_exception(error);
    t->step();
  }
}

// The graph saved the weights of the step before: LibTorch's version counter says so, as it does after torch.optim's step.
struct Carries : Net {
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) override {
    const at::Tensor before = std::exchange(carried, second(features(x)).to(at::kFloat).square().mean());
    const at::Tensor loss = Net::forward(x, y);
    return before.defined() ? loss + before.to(loss.scalar_type()) : loss;
  }
  at::Tensor carried;
};
ROW(a_graph_kept_over_a_step, "modified by an inplace operation") {
  auto t = side.trainer(std::static_pointer_cast<Model>(make<Carries>(1)));
  t->train(1);
  try {
    t->train(1);
  } catch (const c10::Error& error) {  // LibTorch's own, which is no third outcome here
    throw gannet::Error(gannet::ErrorCode::kOrder, error.what_without_backtrace());
  }
}

}  // namespace
