// Rows: who trains a parameter, and what the program changes about that.
#include <gannet/zero.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <unistd.h>

#include <filesystem>

#include "guest/trainer.h"

namespace {

using namespace guest;

bool not_fp64(const Setting& setting) {
  return setting.dtype != "fp64";
}  // whose rows convert the model first: nothing is shared then

void freeze(const at::Tensor& parameter, bool on = true) { at::Tensor(parameter).requires_grad_(!on); }

ROW(second_engine_on_the_module, "") {
  auto model = make<Net>(1);
  auto a = side.trainer(model);
  a->train(3);
  auto b = side.trainer(model, {.lr = 0.02, .momentum = 0});
  side.drop(a);
  b->train(3);
}

ROW(second_engine_within_a_step_of_the_first, "which holds gradients of a step that has begun") {
  auto model = make<Net>(1);
  auto a = side.trainer(model, {.accumulation = 2});
  a->micro_batch();
  auto b = side.trainer(model);
  b->train(1);
}

ROW(second_engine_while_a_part_is_frozen, "") {
  auto model = make<Net>(1);
  auto a = side.trainer(model);
  a->train(2);
  freeze(model->second->weight);
  auto b = side.trainer(model, {.momentum = 0});
  side.drop(a);
  b->train(2);
  freeze(model->second->weight, false);
  b->train(2);
}

ROW(first_engine_ended_before_the_second, "") {
  auto model = make<Net>(1);
  auto a = side.trainer(model);
  a->train(3);
  side.drop(a);
  auto b = side.trainer(model, {.lr = 0.02, .momentum = 0});
  b->train(3);
}

ROW(first_engine_used_after_the_second, "its module was given to") {
  auto model = make<Net>(1);
  auto a = side.trainer(model);
  a->train(1);
  auto b = side.trainer(model);
  b->train(1);
  a->train(1);
}

ROW(two_models_share_a_part, "is trained by engine") {
  auto a = make<Net>(1);
  struct Part : Net {
    explicit Part(torch::nn::Linear other) { second = replace_module("second", other); }
  };
  auto ta = side.trainer(a);
  auto tb = side.trainer(std::static_pointer_cast<Model>(std::make_shared<Part>(a->second)));
  tb->train(1);
}

ROW(thawed, "") {
  auto model = make<Net>(1);
  freeze(model->first->weight);
  auto t = side.trainer(model);
  t->train(2);
  freeze(model->first->weight, false);
  t->train(4);
}

// The checkpoint has the parameter as trained, the engine that loads it learns of it only by then.
ROW(thawed_before_a_load, "") {
  auto t = side.trainer();
  t->train(2);
  if (t->engine) {
    const std::string folder = (std::filesystem::temp_directory_path() / ("gannet-thawed-" + std::to_string(getppid()))).string();
    t->engine->save_checkpoint(folder);
    side.drop(t);
    auto again = make<Net>(9);
    again->first->weight.requires_grad_(false);
    t = side.trainer(again);
    again->first->weight.requires_grad_(true);
    t->engine->load_checkpoint(folder);
    t->next = 2;
    t->engine->process_group()->barrier();
    if (side.setting.rank == 0) std::filesystem::remove_all(folder);
  }
  t->train(3);
}

ROW(thawed_by_and_by, "") {
  auto model = make<Net>(1);
  for (auto& p : model->first->parameters()) freeze(p);
  auto t = side.trainer(model);
  t->train(1);
  freeze(model->first->bias, false);
  t->train(2);
  freeze(model->first->weight, false);
  t->train(3);
}

ROW(thawed_between_micro_batches, "") {
  auto model = make<Net>(1);
  freeze(model->first->weight);
  auto t = side.trainer(model, {.accumulation = 3});
  t->train(1);
  t->micro_batch();
  freeze(model->first->weight, false);
  t->micro_batch();
  t->micro_batch();
  t->train(2);
}

// It is larger than every bucket before it, and its gradient comes first: the buffer that waits for a gradient is too small.
ROW(a_large_layer_thawed, "") {
  struct Wide : Net {
    Wide() {
      wide = register_module("wide", torch::nn::Linear(torch::nn::LinearOptions(16, 20'000).bias(false)));
      wide->weight.requires_grad_(false);
    }
    at::Tensor forward(const at::Tensor& x, const at::Tensor& y) override {
      const at::Tensor h = features(x);
      const at::Tensor out = second(h);  // before wide(h): backward is the other way round
      return torch::mse_loss((out + wide(h).mean(1, true)).to(y.scalar_type()), y);
    }
    torch::nn::Linear wide{nullptr};
  };
  auto model = make<Wide>(1);
  auto t = side.trainer(model);
  t->train(3);
  freeze(model->wide->weight, false);
  t->train(3);
}

ROW(frozen_while_training, "") {
  auto model = make<Net>(1);
  auto t = side.trainer(model);
  t->train(3);
  freeze(model->first->weight);
  t->train(3);
}

ROW(frozen_and_thawed_again, "") {
  auto model = make<Net>(1);
  auto t = side.trainer(model);
  t->train(2);
  freeze(model->second->weight);
  t->train(2);
  freeze(model->second->weight, false);
  t->train(2);
}

ROW(frozen_after_its_gradient, "") {
  auto model = make<Net>(1);
  auto t = side.trainer(model);
  t->train(1);
  t->backward(t->forward(t->next++));
  freeze(model->second->weight);
  t->step();
  t->train(1);
}

ROW(all_but_one_frozen, "") {
  auto model = make<Net>(1);
  auto t = side.trainer(model);
  t->train(2);
  for (auto& p : model->parameters()) freeze(p);
  freeze(model->second->bias, false);
  t->train(2);
}

ROW(added_layer, "") {
  struct Grows : Net {
    at::Tensor forward(const at::Tensor& x, const at::Tensor& y) override {
      if (!extra) return Net::forward(x, y);
      const at::Tensor h = features(x);
      return torch::mse_loss((second(h) + extra(h)).to(y.scalar_type()), y);
    }
    torch::nn::Linear extra{nullptr};
  };
  auto model = make<Grows>(1);
  auto t = side.trainer(model);
  t->train(2);
  torch::manual_seed(3);
  model->extra = model->register_module("extra", torch::nn::Linear(16, 4));
  move_to_device(*model->extra);
  if (side.setting.dtype == "fp64") model->extra->to(at::kDouble);
  t->train(3);
}

ROW(replaced_layer, "the module's parameter 'second.weight' is another tensor") {
  auto model = make<Net>(1);
  auto t = side.trainer(model);
  t->train(1);
  model->second = model->replace_module("second", torch::nn::Linear(16, 4));
  t->train(1);
}

struct Shares : Net {
  Shares() { also = register_parameter("also", first->weight.detach().t()); }
  at::Tensor also;
};
ROW_WHERE(two_parameters_in_one_memory, "share memory", not_fp64) {
  side.trainer(std::static_pointer_cast<Model>(make<Shares>(1)))->train(1);
}

struct BufferShares : Net {
  BufferShares() { also = register_buffer("also", first->weight.detach().t()); }
  at::Tensor also;
};
ROW_WHERE(a_buffer_in_a_parameters_memory, "is also that of buffer 'also'", not_fp64) {
  side.trainer(std::static_pointer_cast<Model>(make<BufferShares>(1)))->train(1);
}

struct Caches : Net {
  Caches() { view = first->weight.detach().t(); }
  at::Tensor view;
};
ROW_WHERE(a_view_kept_by_the_module, "is also that of another tensor", not_fp64) {
  side.trainer(std::static_pointer_cast<Model>(make<Caches>(1)))->train(1);
}

struct Tied : Net {
  Tied() { tied = register_parameter("tied", second->weight); }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) override {
    const at::Tensor h = features(x);
    return torch::mse_loss((second(h) + torch::matmul(h, tied.t())).to(y.scalar_type()), y);
  }
  at::Tensor tied;
};
ROW(tied_parameters, "") {
  auto model = make<Tied>(1);
  auto t = side.trainer(model);
  t->train(2);
  torch::NoGradGuard no_grad;
  model->tied.mul_(0.5);
  torch::AutoGradMode grad(true);
  t->train(2);
}

ROW(an_optimizer_handle_after_its_engine, "after its engine had ended") {
  auto t = side.trainer();
  if (!t->engine) return;
  auto handle = t->engine->optimizer_handle();
  auto group = handle->group(0);
  side.drop(t);
  group.get("lr");
}

ROW(a_schedule_handle_after_its_engine, "after its engine had ended") {
  auto t = side.trainer();
  if (!t->engine) return;
  auto handle = t->engine->scheduler_handle();
  side.drop(t);
  handle->step();
}

struct Ignores : torch::autograd::PostAccumulateGradHook {
  void operator()(const torch::autograd::Variable&) override {}
};
ROW(another_hook, "another post-accumulate-gradient hook") {
  auto t = side.trainer();
  t->train(1);
  torch::autograd::impl::set_post_acc_grad_hooks(t->model->parameters()[0], std::make_unique<Ignores>());
  t->train(1);
}

ROW(hook_taken_away, "") {
  auto t = side.trainer();
  t->train(1);
  if (t->engine) torch::autograd::impl::set_post_acc_grad_hooks(t->model->parameters()[0], nullptr);
  t->train(3);
}

ROW(tensor_hook_that_scales, "") {
  auto t = side.trainer();
  t->model->parameters()[0].register_hook([](at::Tensor gradient) { return gradient * 0.25; });
  t->train(3);
}

ROW(groups_without_a_thawed_parameter, "") {
  auto model = make<Net>(1);
  freeze(model->first->weight);
  auto t = side.trainer(model, {.groups = {{.parameters = {model->second->weight, model->second->bias}}}});
  t->train(2);
  freeze(model->first->weight, false);
  t->train(2);
}

ROW(a_thawed_parameter_of_a_group, "") {
  auto model = make<Net>(1);
  freeze(model->second->weight);
  auto t = side.trainer(model, {.groups = {{.parameters = {model->second->weight, model->second->bias}}}});
  t->train(2);
  freeze(model->second->weight, false);
  t->train(3);
}

ROW(a_clone_of_the_model, "") {
  auto model = make<Net>(1);
  auto t = side.trainer(model);
  t->train(2);
  if (!side.setting.is_sharded) {
    torch::NoGradGuard no_grad;
    std::vector<at::Tensor> copies;
    for (auto& p : model->parameters()) copies.push_back(p.detach().clone());
    for (auto& c : copies) c.zero_();
  }
  t->train(2);
}

struct Large : Net {
  Large() {
    wide = register_module("wide", torch::nn::Linear(torch::nn::LinearOptions(8, 8).bias(false)));
    wide->weight.requires_grad_(false);
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) override {
    return Net::forward(wide(x.to(wide->weight.dtype())), y);
  }
  torch::nn::Linear wide{nullptr};
};

ROW(the_engine_made_while_frozen_layers_are_large, "") {
  auto model = make<Large>(1);
  auto t = side.trainer(model);
  t->train(2);
  model->wide->weight.requires_grad_(true);
  t->train(3);
}

ROW(a_guard_that_writes_a_thawed_layer, "") {
  auto model = make<Large>(1);
  auto t = side.trainer(model);
  t->train(1);
  model->wide->weight.requires_grad_(true);
  t->train(1);
  try {
    std::optional<gannet::zero::GatheredParameters> guard;
    if (t->engine)
      guard.emplace(*t->engine, std::vector<at::Tensor>{model->wide->weight},
                    gannet::zero::GatheredParameters::Options{.write_from = 0});
    torch::NoGradGuard no_grad;
    model->wide->weight.fill_(0.125);
  } catch (const gannet::Error& error) {  // a guard is how it is written where nothing is whole
    throw std::logic_error(std::string("under a guard: ") + error.what());
  }
  t->train(2);
}

}  // namespace
