// Rows: steps that are not taken as a whole, and numbers that change between them.
#include <unistd.h>

#include <filesystem>

#include "guest/trainer.h"

namespace {

using namespace guest;

bool fp64(const Setting& setting) { return setting.dtype == "fp64" || setting.dtype == "fp32"; }

ROW(gradual_batch_sizes, "") {
  auto t = side.trainer(nullptr, {.accumulation = 4});
  for (const int64_t micro_batches : {4, 3, 2, 5, 1, 4}) {
    t->set_accumulation(micro_batches);
    t->train(1);
  }
}

ROW(batch_size_changed_within_a_step, "") {
  auto t = side.trainer(nullptr, {.accumulation = 4});
  t->train(1);
  t->micro_batch();
  t->micro_batch();
  t->set_accumulation(3);
  t->micro_batch();
  t->micro_batch();
  for (int i = 0; i < 6; ++i) t->micro_batch();
}

// A loss that is not a number in the micro-batches that are named.
struct Poisoned : Net {
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) override {
    const at::Tensor loss = Net::forward(x, y);
    return is_poisoned ? loss * std::numeric_limits<float>::quiet_NaN() : loss;
  }
  bool is_poisoned = false;
};

template <class Body>
void ignoring(const Body& body) {
  try {
    body();
  } catch (const gannet::Error& error) {
    if (error.code() != gannet::ErrorCode::kNonFinite) throw;
  }
}

ROW_WHERE(a_nan_that_is_caught, "", at_least_fp32) {
  auto model = make<Poisoned>(1);
  auto t = side.trainer(model);
  for (int step = 0; step < 5; ++step) {
    model->is_poisoned = step == 2;
    ignoring([&] { t->micro_batch(); });
  }
}

ROW_WHERE(a_nan_in_the_third_micro_batch, "", at_least_fp32) {
  auto model = make<Poisoned>(1);
  auto t = side.trainer(model, {.accumulation = 4});
  for (int micro = 0; micro < 15; ++micro) {
    model->is_poisoned = micro == 6;
    ignoring([&] { t->micro_batch(); });
  }
}

// The loss is finite, its gradient is not.
struct Infinite : Net {
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) override {
    const at::Tensor loss = Net::forward(x, y);
    return is_infinite ? loss + (second->bias.pow(2).sum() * 0 + 1e-300).sqrt().to(loss.scalar_type()) * 0 +
                             (second->bias - second->bias.detach()).abs().pow(0.5).sum().to(loss.scalar_type())
                       : loss;
  }
  bool is_infinite = false;
};

ROW_WHERE(an_infinite_gradient_that_is_caught, "", at_least_fp32) {
  auto model = make<Infinite>(1);
  auto t = side.trainer(model, {.accumulation = 2});
  for (int micro = 0; micro < 8; ++micro) {
    model->is_infinite = micro == 3;
    ignoring([&] { t->micro_batch(); });
  }
}

struct Throws : Net {
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) override {
    if (fails) throw std::runtime_error("a bad sample");
    return Net::forward(x, y);
  }
  bool fails = false;
};

ROW(an_exception_in_forward, "") {
  auto model = make<Throws>(1);
  auto t = side.trainer(model, {.accumulation = 2});
  for (int micro = 0; micro < 6; ++micro) {
    model->fails = micro == 3;
    try {
      t->forward(t->next);
      model->fails = false;
    } catch (const std::runtime_error&) {
      model->fails = false;
    }
    t->micro_batch();
  }
}

ROW(an_exception_in_backward, "") {
  train_past_a_failing_backward(side, [](Trainer& t) { t.micro_batch(); });
}

ROW(gradients_forgotten_within_a_step, "") {
  auto t = side.trainer(nullptr, {.accumulation = 3});
  t->train(1);
  t->micro_batch();
  t->micro_batch();
  t->zero_grad();
  t->train(2);
}

ROW(boundary_set_by_the_program, "") {
  auto t = side.trainer(nullptr, {.accumulation = 4});
  for (const int64_t micro_batches : {1, 3, 2}) {
    t->set_boundary(false);
    for (int64_t i = 1; i < micro_batches; ++i) t->micro_batch();
    t->set_boundary(true);
    t->micro_batch();
  }
}

struct Huge : Net {
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) override { return Net::forward(x, y) * 1e200; }
};
ROW_WHERE(a_norm_beyond_fp64, "", [](const Setting& setting) { return setting.dtype == "fp64"; }) {
  side.trainer(std::static_pointer_cast<Model>(make<Huge>(1)), {.clipping = 0.5})->train(3);
}

ROW(step_without_backward, "before forward() and backward()") {
  auto t = side.trainer();
  t->train(1);
  t->step();
}

ROW(backward_without_forward, "before the forward() of its micro-batch") {
  auto t = side.trainer();
  const at::Tensor loss = t->forward(t->next++);
  t->backward(loss);
  t->step();
  t->backward(loss);
}

ROW(evaluation_between_micro_batches, "") {
  auto t = side.trainer(nullptr, {.accumulation = 2});
  for (int step = 0; step < 3; ++step) {
    t->micro_batch();
    {
      torch::NoGradGuard no_grad;
      t->forward(70);
    }
    t->micro_batch();
  }
}

ROW(backward_behind_an_evaluation, "before the forward() of its micro-batch") {
  auto t = side.trainer();
  const at::Tensor loss = t->forward(t->next++);
  t->backward(loss);
  t->step();
  {
    torch::NoGradGuard no_grad;
    t->forward(70);
  }
  t->backward(loss);
}

// Stage 3 with parameters that are gathered once and kept for their next use: an update makes the copies old.
ROW_WHERE(gathered_parameters_kept_for_reuse, "", [](const Setting& setting) { return setting.is_sharded; }) {
  gannet::Dict zero{{"stage", 3}, {"stage3_param_persistence_threshold", 0}};
  auto t = side.trainer(nullptr, {.accumulation = 2, .config = {{"zero_optimization", zero}}});
  for (int step = 0; step < 3; ++step) {
    t->micro_batch();
    t->backward(t->forward(t->next++));
    {
      torch::NoGradGuard no_grad;
      t->forward(70);
    }
    t->step();
  }
}

ROW(inference_mode_between_steps, "") {
  auto t = side.trainer();
  for (int step = 0; step < 3; ++step) {
    t->train(1);
    c10::InferenceMode inference;
    t->forward(70);
  }
}

ROW(rates_by_hand, "") {
  auto t = side.trainer();
  for (const double lr : {0.1, 0.01, 0.05}) {
    t->set_lr(lr);
    t->train(2);
  }
}

ROW(saved_and_loaded_in_between, "") {
  auto t = side.trainer();
  t->train(2);
  if (t->engine) {
    const std::string folder = (std::filesystem::temp_directory_path() / ("gannet-guest-" + std::to_string(getppid()))).string();
    t->engine->save_checkpoint(folder);
    t->train(2);
    torch::NoGradGuard no_grad;
    if (!side.setting.is_sharded)
      for (auto& p : t->model->parameters()) p.set_data(at::zeros_like(p));
    torch::AutoGradMode grad(true);
    t->engine->load_checkpoint(folder);
    t->next = 2;
    t->engine->process_group()->barrier();
    if (side.setting.rank == 0) std::filesystem::remove_all(folder);
  }
  t->train(3);
}

ROW(evaluation_mode_and_back, "") {
  auto t = side.trainer();
  t->train(1);
  if (t->engine) t->engine->eval();
  {
    torch::NoGradGuard no_grad;
    t->forward(70);
  }
  if (t->engine) t->engine->train();
  t->train(2);
}

}  // namespace
