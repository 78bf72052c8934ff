// Rows: gradients that the program clears, reads or changes in `.grad` between a backward and its step.
#include "guest/trainer.h"

namespace {

using namespace guest;

constexpr const char* kNotInGrad = "`.grad` of 'first.weight' was read or written between backward() and step()";

ROW(cleared_between_backward_and_step, "") {
  auto t = side.trainer();
  for (int step = 0; step < 4; ++step) {
    t->backward(t->forward(t->next++));
    if (step % 2 == 1) t->model->zero_grad();
    t->step();
  }
}

ROW(cleared_before_each_micro_batch, "") {
  auto t = side.trainer(nullptr, {.accumulation = 2, .clipping = 0.3});
  for (int micro = 0; micro < 8; ++micro) {
    t->model->zero_grad();
    t->micro_batch();
  }
}

ROW(cleared_behind_the_second_of_four, "") {
  auto t = side.trainer(nullptr, {.accumulation = 4});
  for (int micro = 0; micro < 12; ++micro) {
    t->micro_batch();
    if (micro % 4 == 1) t->model->zero_grad();
  }
}

ROW(cleared_between_forward_and_backward_of_the_second, "") {
  auto t = side.trainer(nullptr, {.accumulation = 2});
  for (int step = 0; step < 3; ++step) {
    t->micro_batch();
    const at::Tensor loss = t->forward(t->next++);
    t->model->zero_grad();
    t->backward(loss);
    t->step();
  }
}

ROW(a_part_is_cleared, "") {
  auto model = make<Net>(1);
  auto t = side.trainer(model, {.accumulation = 2});
  for (int step = 0; step < 3; ++step) {
    t->micro_batch();
    model->second->zero_grad();
    t->micro_batch();
  }
  t->micro_batch();
  t->backward(t->forward(t->next++));
  model->first->zero_grad();
  t->step();
  t->train(2);
}

ROW(one_gradient_is_reset, "") {
  auto model = make<Net>(1);
  auto t = side.trainer(model);
  t->train(1);
  t->backward(t->forward(t->next++));
  model->second->bias.mutable_grad().reset();
  t->step();
  t->train(2);
}

ROW(cleared_by_an_optimizer_of_the_program, "") {
  auto model = make<Net>(1);
  auto t = side.trainer(model, {.accumulation = 2});
  torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.1));
  for (int step = 0; step < 3; ++step) {
    t->micro_batch();
    sgd.zero_grad();
    t->micro_batch();
  }
}

ROW(cleared_behind_a_scaled_loss, "") {
  auto t = side.trainer(nullptr, {.accumulation = 2});
  for (int step = 0; step < 3; ++step) {
    t->scale(t->forward(t->next++)).backward();
    t->step();
    t->model->zero_grad();
    t->micro_batch();
  }
}

ROW(cleared_behind_a_graph_of_gradients, "") {
  auto t = side.trainer(nullptr, {.accumulation = 2});
  for (int step = 0; step < 3; ++step) {
    t->backward(t->forward(t->next++), /*create_graph=*/true);
    t->step();
    t->model->zero_grad(/*set_to_none=*/step == 1);
    t->micro_batch();
  }
}

ROW(a_gradient_set_by_hand_beside_a_graph_of_gradients, "found a gradient in `.grad` of 'second.bias'") {
  auto model = make<Net>(1);
  auto t = side.trainer(model, {.accumulation = 2});
  t->backward(t->forward(t->next++), /*create_graph=*/true);
  t->step();
  model->second->bias.mutable_grad() = at::ones_like(model->second->bias).detach();
  t->micro_batch();
}

ROW(a_kept_gradient_that_is_written, "found a gradient in `.grad` of 'first.weight'") {
  auto t = side.trainer();
  t->backward(t->forward(t->next++), /*create_graph=*/true);
  {
    torch::NoGradGuard no_grad;
    t->model->parameters()[0].mutable_grad().mul_(0.5);
  }
  t->step();
}

// A gradient that a later micro-batch omits counts as zeros, as if it was never used (program.md
// (d)).
ROW(cleared_before_a_micro_batch_without_it, "") {
  struct Turns : Net {
    Turns() { other = register_module("other", torch::nn::Linear(8, 16)); }
    at::Tensor forward(const at::Tensor& x, const at::Tensor& y) override {
      const at::Tensor out =
          second(torch::tanh(uses_other ? other(x.to(other->weight.dtype())) : first(x.to(other->weight.dtype()))));
      const auto wide = out.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
      return torch::mse_loss(out.to(wide), y.to(wide));
    }
    bool uses_other = true;
    torch::nn::Linear other{nullptr};
  };
  auto model = make<Turns>(1);
  auto t = side.trainer(model, {.accumulation = 2});
  for (int micro = 0; micro < 8; ++micro) {
    model->uses_other = micro % 2 == 0;
    t->micro_batch();
    if (micro % 2 == 0) t->model->zero_grad();
  }
}

ROW(cleared_after_freezing, "") {
  auto model = make<Net>(1);
  auto t = side.trainer(model);
  t->train(1);
  t->backward(t->forward(t->next++));
  model->first->weight.requires_grad_(false);
  model->zero_grad();
  t->step();
  model->first->weight.requires_grad_(true);
  t->train(2);
}

ROW(cleared_before_an_error, "") {
  auto fails = std::make_shared<bool>(false);
  auto t = side.trainer(nullptr, {.accumulation = 3});
  t->model->parameters()[0].register_hook([fails](at::Tensor gradient) {
    if (*fails) throw std::runtime_error("a hook of the program");
    return gradient;
  });
  t->train(1);
  t->micro_batch();
  t->model->zero_grad();
  *fails = true;
  try {
    t->micro_batch();
  } catch (const std::exception&) {
    if (side.is_plain) t->zero_grad();
  }
  *fails = false;
  t->train(2);
}

ROW(set_to_zeros_between_backward_and_step, kNotInGrad) {
  auto t = side.trainer();
  t->backward(t->forward(t->next++));
  t->model->zero_grad(/*set_to_none=*/false);
  t->step();
}

ROW(clipped_by_torch, kNotInGrad) {
  auto t = side.trainer();
  t->backward(t->forward(t->next++));
  torch::nn::utils::clip_grad_norm_(t->model->parameters(), 1.0);
  t->step();
}

ROW(clipped_by_value_by_torch, kNotInGrad) {
  auto t = side.trainer();
  t->backward(t->forward(t->next++));
  torch::nn::utils::clip_grad_value_(t->model->parameters(), 0.01);
  t->step();
}

ROW(a_gradient_that_is_logged, kNotInGrad) {
  auto t = side.trainer();
  t->backward(t->forward(t->next++));
  t->model->parameters()[0].grad().norm().item<double>();
  t->step();
}

// With sharded parameters, the error about those comes first.
ROW_WHERE(stepped_by_an_optimizer_of_the_program, kNotInGrad, [](const Setting& setting) { return !setting.is_sharded; }) {
  auto model = make<Net>(1);
  auto t = side.trainer(model);
  torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.1));
  t->backward(t->forward(t->next++));
  sgd.step();
}

}  // namespace
