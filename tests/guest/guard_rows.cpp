// Rows: what the program writes under a zero::GatheredParameters guard, and memory that it makes two parameters share.
#include "guest/trainer.h"

namespace {

using namespace guest;

// Each update is smaller than the last 16-bit digit of what it changes: masters have the sum of them, and nothing else has.
template <class Body>
void between_small_updates(Side& side, const Body& body) {
  auto t = side.trainer(nullptr, {.lr = 0.006, .momentum = 0, .weight_decay = 0});
  auto p = t->model->parameters()[3];
  under_guard(*t, {p}, true, [&] { p.fill_(4.5); });
  for (int step = 0; step < 40; ++step) {
    t->train(1);
    body(*t);
  }
}

ROW(a_write_guard_that_writes_nothing, "") {
  between_small_updates(side, [](Trainer& t) { under_guard(t, t.model->parameters(), true, [] {}); });
}

ROW(a_write_guard_that_writes_old_values, "") {
  between_small_updates(side, [](Trainer& t) {
    under_guard(t, t.model->parameters(), true, [&] {
      for (auto& p : t.model->parameters()) p.copy_(p.clone());
    });
  });
}

ROW(a_write_guard_that_writes_some_elements, "") {
  between_small_updates(
      side, [](Trainer& t) { under_guard(t, t.model->parameters(), true, [&] { t.model->parameters()[3][0].fill_(4.5); }); });
}

ROW(a_read_guard_between_small_updates, "") {
  between_small_updates(side, [](Trainer& t) { under_guard(t, t.model->parameters(), false, [] {}); });
}

void swap_in_and_out(Trainer& t, bool in_one_guard) {
  std::vector<at::Tensor> kept;
  const auto in = [&] {
    for (auto& p : t.model->parameters()) {
      kept.push_back(p.clone());
      p.mul_(0.75);
    }
  };
  const auto out = [&] {
    for (size_t i = 0; i < kept.size(); ++i) t.model->parameters()[i].copy_(kept[i]);
  };
  if (in_one_guard) return under_guard(t, t.model->parameters(), true, [&] { in(), out(); });
  under_guard(t, t.model->parameters(), true, in);
  {
    torch::NoGradGuard no_grad;
    t.forward(70);
  }
  under_guard(t, t.model->parameters(), true, out);
}

ROW(an_average_swapped_in_and_out_under_one_guard, "") {
  between_small_updates(side, [](Trainer& t) { swap_in_and_out(t, true); });
}

ROW(an_average_swapped_in_and_out_under_two_guards, "") {
  between_small_updates(side, [](Trainer& t) { swap_in_and_out(t, false); });
}

// As ordinary programs do it where parameters are whole, with a call of the engine while the average is in.
ROW_WHERE(an_average_swapped_in_and_out_without_a_guard, "", [](const Setting& setting) { return setting.stage < 3; }) {
  between_small_updates(side, [](Trainer& t) {
    const torch::NoGradGuard no_grad;
    std::vector<at::Tensor> kept;
    for (auto& p : t.model->parameters()) {
      kept.push_back(p.clone());
      p.mul_(0.75);
    }
    if (t.engine) t.engine->full_fp32_parameter("first.weight");
    for (size_t i = 0; i < kept.size(); ++i) t.model->parameters()[i].copy_(kept[i]);
  });
}

// A copy of the same values in other memory has the precision of the parameter.
ROW(a_copy_as_new_memory_between_small_updates, "") {
  between_small_updates(side, [](Trainer& t) {
    under_guard(t, t.model->parameters(), true, [&] {
      for (auto& p : t.model->parameters()) p.set_data(p.detach().clone());
    });
  });
}

// Two layers of one shape.
struct Square : Model {
  Square() {
    a = register_module("a", torch::nn::Linear(8, 8));
    b = register_module("b", torch::nn::Linear(8, 8));
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) override {
    const at::Tensor out = b(torch::tanh(a(x.to(a->weight.dtype())))).narrow(1, 0, 4);
    const auto wide = out.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    return torch::mse_loss(out.to(wide), y.to(wide));
  }
  torch::nn::Linear a{nullptr}, b{nullptr};
};

ROW(tied_by_set_data, "parameter 'b.weight' was given the memory of parameter 'a.weight'") {
  auto model = make<Square>(1);
  auto t = side.trainer(model);
  t->train(1);
  model->b->weight.set_data(model->a->weight.detach());
  t->train(2);
}

ROW(tied_by_set_data_under_a_guard, "parameter 'b.weight' was given the memory of parameter 'a.weight'") {
  auto model = make<Square>(1);
  auto t = side.trainer(model);
  t->train(1);
  under_guard(*t, model->parameters(), true, [&] { model->b->weight.set_data(model->a->weight.detach()); });
  t->train(2);
}

ROW(frozen_and_tied_by_set_data, "parameter 'b.weight' was given the memory of parameter 'a.weight'") {
  auto model = make<Square>(1);
  model->b->weight.requires_grad_(false);
  auto t = side.trainer(model);
  t->train(1);
  model->b->weight.set_data(model->a->weight.detach());
  t->train(2);
}

ROW(tied_to_a_buffer_by_set_data, "was given the memory of buffer 'kept'") {
  auto model = make<Square>(1);
  model->register_buffer("kept", torch::ones({8}));
  auto t = side.trainer(model);
  t->train(1);
  model->b->bias.set_data(model->named_buffers()["kept"]);
  t->train(2);
}

ROW(tied_by_set_data_and_then_thawed, "parameter 'b.weight' was given the memory of parameter 'a.weight'") {
  auto model = make<Square>(1);
  model->b->weight.requires_grad_(false);
  auto t = side.trainer(model);
  t->train(1);
  model->b->weight.set_data(model->a->weight.detach());
  model->b->weight.requires_grad_(true);
  t->train(2);
}

ROW(a_new_layer_in_the_memory_of_another, "parameter 'c.weight' was given the memory of parameter 'a.weight'") {
  auto model = make<Square>(1);
  auto t = side.trainer(model);
  t->train(1);
  auto c = model->register_module("c", torch::nn::Linear(8, 8));
  move_to_device(*c);
  c->weight.set_data(model->a->weight.detach());
  t->train(2);
}

ROW(two_parameters_that_exchange_their_memory, "") {
  auto model = make<Square>(1);
  auto t = side.trainer(model);
  t->train(1);
  under_guard(*t, {model->a->weight, model->b->weight}, true, [&] {
    const at::Tensor first = model->a->weight.detach(), second = model->b->weight.detach();
    model->a->weight.set_data(second);
    model->b->weight.set_data(first);
  });
  t->train(3);
}

}  // namespace
