// Rows: parameters that come into the module, or begin to require a gradient, within forward; and gradients that are there
// before.
#include "guest/trainer.h"

namespace {

using namespace guest;

// Makes a layer at its first use, in the type of the others or in fp32.
struct Lazy : Net {
  explicit Lazy(bool is_fp32 = false) : is_fp32(is_fp32) {}
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) override {
    if (!makes) return Net::forward(x, y);
    if (!extra) {
      torch::manual_seed(seed);
      extra = register_module("extra", torch::nn::Linear(16, 16));
      move_to_device(*extra);
      if (!is_fp32 || first->weight.scalar_type() == at::kDouble) extra->to(first->weight.scalar_type());
    }
    const at::Tensor h = features(x);
    const at::Tensor out = second(torch::tanh(extra(h.to(extra->weight.scalar_type()))).to(h.scalar_type()));
    const auto wide = out.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    return torch::mse_loss(out.to(wide), y.to(wide));
  }
  bool is_fp32, makes = true;
  uint64_t seed = 77;
  torch::nn::Linear extra{nullptr};
};

ROW(a_layer_made_in_forward, "") { side.trainer(make<Lazy>(1))->train(4); }

ROW(a_layer_of_fp32_made_in_forward, "") { side.trainer(make<Lazy>(1, true))->train(4); }

ROW(a_layer_made_in_the_second_micro_batch, "") {
  auto model = make<Lazy>(1);
  auto t = side.trainer(model, {.accumulation = 3});
  model->makes = false;
  t->train(1);
  t->micro_batch();
  model->makes = true;
  t->micro_batch();
  t->micro_batch();
  t->train(2);
}

ROW(a_layer_made_in_the_last_micro_batch, "") {
  auto model = make<Lazy>(1);
  auto t = side.trainer(model, {.accumulation = 2, .clipping = 0.1});
  model->makes = false;
  t->train(1);
  t->micro_batch();
  model->makes = true;
  t->micro_batch();
  t->train(2);
}

ROW(a_layer_made_in_forward_whose_gradient_is_clipped_by_hand, "") {
  auto t = side.trainer(make<Lazy>(1));
  for (int step = 0; step < 3; ++step) {
    t->backward(t->forward(t->next++));
    t->each_gradient([](at::Tensor& gradient) { gradient.clamp_(-0.02, 0.02); });
    t->step();
  }
}

ROW(a_layer_made_in_forward_of_a_scaled_loss, "") {
  auto t = side.trainer(make<Lazy>(1));
  t->scale(t->forward(t->next++)).backward();
  t->step();
  t->train(2);
}

ROW(a_layer_made_in_forward_whose_gradient_is_cleared, "") {
  auto t = side.trainer(make<Lazy>(1), {.accumulation = 2});
  t->micro_batch();
  t->model->zero_grad();
  t->micro_batch();
  t->train(2);
}

// It has joined by then, with the gradient of its first micro-batch.
ROW(a_layer_made_in_forward_whose_gradient_is_cleared_behind_the_next_forward, "") {
  auto t = side.trainer(make<Lazy>(1), {.accumulation = 2});
  t->micro_batch();
  const at::Tensor loss = t->forward(t->next++);
  t->model->zero_grad();
  t->backward(loss);
  t->step();
  t->train(2);
}

ROW(a_layer_made_in_forward_whose_only_gradient_is_cleared, "") {
  auto t = side.trainer(make<Lazy>(1));
  t->backward(t->forward(t->next++));
  t->model->zero_grad();
  t->step();
  t->train(2);
}

ROW(a_layer_made_in_forward_of_a_step_that_begins_again, "") {
  auto t = side.trainer(make<Lazy>(1), {.accumulation = 2});
  t->micro_batch();
  t->zero_grad();
  t->train(3);
}

ROW(a_layer_thawed_in_forward, "") {
  struct Thaws : Net {
    at::Tensor forward(const at::Tensor& x, const at::Tensor& y) override {
      if (thaws) first->weight.requires_grad_(true);
      return Net::forward(x, y);
    }
    bool thaws = false;
  };
  auto model = make<Thaws>(1);
  model->first->weight.requires_grad_(false);
  auto t = side.trainer(model);
  t->train(2);
  model->thaws = true;
  t->train(3);
}

ROW(a_layer_made_in_forward_in_no_group, "") {
  auto model = make<Lazy>(1);
  auto t = side.trainer(model, {.groups = {{.parameters = model->parameters()}}});
  t->train(3);
}

ROW_WHERE(a_layer_made_in_forward_with_other_values, "has other values on rank 1 than on rank 0",
          [](const Setting& setting) { return setting.world > 1; }) {
  auto model = make<Lazy>(1);
  model->seed += static_cast<uint64_t>(side.setting.rank);
  side.trainer(model)->train(2);
}

ROW(a_thawed_parameter_with_a_gradient, "found a gradient in `.grad` of 'first.weight'") {
  auto model = make<Net>(1);
  model->first->weight.requires_grad_(false);
  auto t = side.trainer(model);
  t->train(1);
  model->first->weight.requires_grad_(true);
  model->first->weight.mutable_grad() = at::ones({16, 8}, model->first->weight.options().requires_grad(false));
  t->train(1);
}

ROW(a_gradient_from_before_the_engine, "found a gradient in `.grad` of 'first.weight'") {
  auto model = make<Net>(1);
  const auto [x, y] = Trainer::batch(0, 0, 1);
  model->forward(x.cpu(), y.cpu()).backward();
  side.trainer(model)->train(1);
}

ROW(a_gradient_from_before_the_engine_that_is_cleared, "") {
  auto model = make<Net>(1);
  const auto [x, y] = Trainer::batch(0, 0, 1);
  model->forward(x.cpu(), y.cpu()).backward();
  auto t = side.trainer(model);
  model->zero_grad();
  t->train(2);
}

}  // namespace
