// Rows: what the program writes into parameters.
#include <gannet/zero.h>

#include <sstream>

#include "guest/trainer.h"

namespace {

using namespace guest;

std::string saved(Model& model) {
  std::ostringstream out;
  torch::serialize::OutputArchive archive;
  model.save(archive);
  archive.save_to(out);
  return out.str();
}

// A file of fp32 weights, or of fp64 ones for a model of those. LibTorch reads a file into a parameter of another dtype as if its
// bytes were of that dtype: the plain side copies.
void load(Side& side, const std::shared_ptr<Model>& model, const std::shared_ptr<Net>& from) {
  if (side.setting.dtype == "fp64") from->to(at::kDouble);
  if (side.is_plain) {
    torch::NoGradGuard no_grad;
    for (size_t i = 0; i < from->parameters().size(); ++i) {
      at::Tensor parameter = model->parameters()[i];
      parameter.set_data(from->parameters()[i].detach().clone());
    }
  } else {
    std::istringstream in(saved(*from));
    torch::load(model, in);
  }
  move_to_device(*model);  // the file's tensors are the CPU's
}

ROW(untouched, "") { side.trainer()->train(5); }

ROW(accumulates, "") { side.trainer(nullptr, {.accumulation = 3, .clipping = 0.3})->train(4); }

ROW(torch_load_after_initialize, "") {
  auto other = make<Net>(7);
  auto t = side.trainer();
  load(side, t->model, other);
  t->train(4);
}

ROW(torch_load_twice_while_training, "") {
  auto other = make<Net>(7);
  auto t = side.trainer();
  for (int i = 0; i < 2; ++i) {
    t->train(2);
    load(side, t->model, other);
  }
  t->train(2);
}

ROW(torch_load_into_a_frozen_layer, "") {
  auto model = make<Net>(1), other = make<Net>(7);
  model->second->weight.requires_grad_(false);
  auto t = side.trainer(model);
  load(side, t->model, other);
  t->train(4);
}

ROW(set_data, "") {
  auto t = side.trainer();
  t->train(2);
  for (auto& p : t->model->parameters()) p.set_data(at::full_like(p, 0.05));
  t->train(3);
}

ROW(set_data_of_one_parameter_between_backward_and_step, "") {
  auto t = side.trainer();
  t->train(1);
  t->backward(t->forward(t->next++));
  auto p = t->model->parameters()[1];
  p.set_data(at::full_like(p, 0.25));
  t->step();
  t->train(2);
}

ROW(to_double_and_back, "") {
  auto t = side.trainer();
  t->train(1);
  const auto type = t->model->parameters()[0].scalar_type();
  t->model->to(at::kDouble);
  t->model->to(type);
  t->train(3);
}

ROW(to_the_same_device, "") {
  auto t = side.trainer();
  t->train(1);
  move_to_device(*t->model);
  t->train(3);
}

ROW(clamped_weights, "") {
  auto t = side.trainer();
  for (int step = 0; step < 5; ++step) {
    t->train(1);
    torch::NoGradGuard no_grad;
    for (auto& p : t->model->parameters()) p.clamp_(-0.2, 0.2);
  }
}

// In 16-bit training, or where parameters are sharded, such a write is found on the CPU alone (docs/limits.md).
ROW_WHERE(clamped_through_data, "", [](const Setting& s) { return is_on_cpu() || (at_least_fp32(s) && s.stage < 3); }) {
  auto t = side.trainer();
  for (int step = 0; step < 4; ++step) {
    t->train(1);
    for (auto& p : t->model->parameters()) p.data().clamp_(-0.05, 0.05);
  }
}

ROW(clamped_through_detach, "") {
  auto t = side.trainer();
  for (int step = 0; step < 4; ++step) {
    t->train(1);
    for (auto& p : t->model->parameters()) p.detach().clamp_(-0.1, 0.1);
  }
}

ROW(scaled_between_backward_and_step, "") {
  auto t = side.trainer();
  for (int step = 0; step < 3; ++step) {
    t->backward(t->forward(t->next++));
    {
      torch::NoGradGuard no_grad;
      for (auto& p : t->model->parameters()) p.mul_(0.5);
    }
    t->step();
  }
}

ROW(averaged_weights_swapped_in_and_out, "") {
  auto t = side.trainer();
  t->train(2);
  torch::NoGradGuard no_grad;
  std::vector<at::Tensor> kept;
  for (auto& p : t->model->parameters()) kept.push_back(p.detach().clone());
  for (auto& p : t->model->parameters()) p.zero_();
  t->model->eval();
  for (size_t i = 0; i < kept.size(); ++i) t->model->parameters()[i].copy_(kept[i]);
  t->model->train();
  torch::AutoGradMode grad(true);
  t->train(2);
}

ROW(initialized_again, "") {
  auto t = side.trainer();
  t->train(2);
  torch::manual_seed(5);
  {
    torch::NoGradGuard no_grad;
    for (auto& p : t->model->parameters()) torch::nn::init::uniform_(p, -0.3, 0.3);
  }
  t->train(2);
}

ROW(pruned_by_a_mask, "") {
  auto t = side.trainer();
  for (int step = 0; step < 3; ++step) {
    t->train(1);
    torch::NoGradGuard no_grad;
    auto p = t->model->parameters()[0];
    p.mul_((at::arange(p.numel(), p.device()).view(p.sizes()) % 2 == 0).to(p.scalar_type()));
  }
}

ROW(copied_from_another_model, "") {
  auto t = side.trainer();
  auto other = make<Net>(9);
  t->train(1);
  torch::NoGradGuard no_grad;
  for (size_t i = 0; i < 4; ++i) t->model->parameters()[i].copy_(other->parameters()[i]);
  torch::AutoGradMode grad(true);
  t->train(3);
}

ROW(one_row_written, "") {
  auto t = side.trainer();
  t->train(1);
  torch::NoGradGuard no_grad;
  t->model->parameters()[0][3].fill_(0.125);
  torch::AutoGradMode grad(true);
  t->train(2);
}

// Between the elements that are compared where a write advances no version.
ROW(one_element_written, "") {
  auto t = side.trainer();
  t->train(1);
  torch::NoGradGuard no_grad;
  t->model->parameters()[0][0][1].fill_(4);
  torch::AutoGradMode grad(true);
  t->train(2);
}

// In 16 bits each update is smaller than the last digit of a value that it changes: the master has the sum of them.
ROW(small_updates_between_writes, "") {
  auto t = side.trainer(nullptr, {.lr = 0.006, .momentum = 0, .weight_decay = 0});
  torch::NoGradGuard no_grad;
  for (int step = 0; step < 40; ++step) {
    auto p = t->model->parameters()[3];
    if (step == 0)
      p.fill_(4.5);
    else
      p.mul_(1);
    torch::AutoGradMode grad(true);
    t->train(1);
  }
}

ROW(written_in_forward_under_no_grad, "") {
  struct Renormed : Net {
    at::Tensor forward(const at::Tensor& x, const at::Tensor& y) override {
      {
        torch::NoGradGuard no_grad;
        first->bias.clamp_(-0.02, 0.02);
      }
      return Net::forward(x, y);
    }
  };
  side.trainer(make<Renormed>(1))->train(4);
}

ROW(another_shape, "parameter 'first.weight' was given a value of shape [4, 4]") {
  auto t = side.trainer();
  t->train(1);
  t->model->parameters()[0].set_data(at::zeros({4, 4}, t->model->parameters()[0].options().requires_grad(false)));
  t->train(1);
}

ROW(transposed_in_place, "") {
  auto t = side.trainer();
  t->train(1);
  auto p = t->model->parameters()[0];
  p.set_data(p.detach().flip(0).contiguous());
  t->train(2);
}

// Between two calls: what the first took in must not be lost to what the second settles.
ROW(set_data_before_a_value_set_by_name, "") {
  auto t = side.trainer();
  t->train(1);
  for (auto& p : t->model->parameters()) p.set_data(at::full_like(p, 0.05));
  const at::Tensor zeros = at::zeros({4});
  if (t->engine)
    t->engine->set_full_fp32_parameter("second.bias", zeros);
  else
    t->model->parameters()[3].set_data(at::zeros_like(t->model->parameters()[3]));
  t->train(2);
}

ROW(set_data_before_a_guard_that_writes, "") {
  auto t = side.trainer();
  t->train(1);
  auto p = t->model->parameters()[0];
  for (auto& q : t->model->parameters()) q.set_data(at::full_like(q, 0.05));
  {
    std::optional<gannet::zero::GatheredParameters> guard;
    if (t->engine)
      guard.emplace(*t->engine, std::vector<at::Tensor>{p}, gannet::zero::GatheredParameters::Options{.write_from = 0});
    torch::NoGradGuard no_grad;
    p.fill_(0.125);
  }
  t->train(2);
}

ROW(set_data_under_a_guard, "") {
  auto t = side.trainer();
  t->train(1);
  auto p = t->model->parameters()[0];
  {
    std::optional<gannet::zero::GatheredParameters> guard;
    if (t->engine)
      guard.emplace(*t->engine, std::vector<at::Tensor>{p}, gannet::zero::GatheredParameters::Options{.write_from = 0});
    p.set_data(at::full_like(p, 0.125));
  }
  t->train(2);
}

ROW(written_while_it_evaluates, "") {
  auto t = side.trainer();
  t->train(1);
  torch::NoGradGuard no_grad;
  for (auto& p : t->model->parameters()) p.mul_(0.9);
  t->forward(50);
  for (auto& p : t->model->parameters()) p.mul_(0.9);
  torch::AutoGradMode grad(true);
  t->train(2);
}

}  // namespace
