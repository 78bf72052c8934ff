// Programs made of habits that meet one another: 3 to 8 moves under a seed, run by both sides. What fails is shrunk to the
// shortest program that still does.
//
// PROGRAMS, FIRST_SEED and DTYPE in the environment choose (a program's dtype is drawn otherwise); a failure prints the moves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <random>

#include "comm/ranks.h"
#include "control/world.h"
#include "guest/trainer.h"
#include "zero/support.h"

namespace {

using namespace guest;

struct Shaky : Net {
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) override {
    const at::Tensor loss = has_extra ? with_extra(x, y) : Net::forward(x, y);
    return is_poisoned ? loss * std::numeric_limits<float>::quiet_NaN() : loss;
  }
  // A layer that is made at its first use.
  at::Tensor with_extra(const at::Tensor& x, const at::Tensor& y) {
    if (!extra) {
      torch::manual_seed(77);
      extra = register_module("extra", torch::nn::Linear(16, 16));
      extra->to(first->weight.scalar_type());
    }
    const at::Tensor h = features(x);
    const at::Tensor out = second(torch::tanh(h + extra(h.to(extra->weight.scalar_type())).to(h.scalar_type())));
    return torch::mse_loss(out.to(at::kFloat), y.to(at::kFloat));
  }
  bool is_poisoned = false, has_extra = false;
  torch::nn::Linear extra{nullptr};
};

// One program: a model, its trainer, and what the moves share.
struct Play {
  Side& side;
  std::shared_ptr<Shaky> model = make<Shaky>(1);
  std::shared_ptr<Trainer> t;
  std::shared_ptr<bool> fails = std::make_shared<bool>(false);
  explicit Play(Side& side, int64_t accumulation) : side(side) {
    model->parameters()[2].register_hook([fails = fails](at::Tensor gradient) {
      if (*fails) throw std::runtime_error("a hook of the program");
      return gradient;
    });
    t = side.trainer(model, {.accumulation = accumulation, .clipping = 1.0});
  }
  // Parameters of Net: a later layer comes after them.
  at::Tensor parameter(int64_t i) {
    const std::vector<at::Tensor> all = {model->first->weight, model->first->bias, model->second->weight, model->second->bias};
    return all[static_cast<size_t>(i)];
  }
  bool is_16_bit() const { return side.setting.dtype == "bf16" || side.setting.dtype == "fp16"; }
  at::Tensor aux() { return model->features(Trainer::batch(90, 0, 1).first).pow(2).mean(); }
};

struct Move {
  const char* name;
  void (*run)(Play&, int64_t choice);  // choice: 0 to 3
  const char* told = "";               // the program ends in this error, on our side
};

template <class Body>
void ignoring_non_finite(const Body& body) {
  try {
    body();
  } catch (const gannet::Error& error) {
    if (error.code() != gannet::ErrorCode::kNonFinite) throw;
  }
}

const Move kMoves[] = {
    {"train", [](Play& p, int64_t) { p.t->train(1); }},
    {"micro-batch", [](Play& p, int64_t) { p.t->micro_batch(); }},
    {"clamp",
     [](Play& p, int64_t i) {
       torch::NoGradGuard no_grad;
       p.parameter(i).clamp_(-0.2, 0.2);
     }},
    {"clamp through data",
     [](Play& p, int64_t i) {
       if (!p.is_16_bit()) p.parameter(i).data().clamp_(-0.1, 0.1);  // 16 elements are compared there
     }},
    {"scale all",
     [](Play& p, int64_t) {
       torch::NoGradGuard no_grad;
       for (auto& q : p.model->parameters()) q.mul_(0.9);
     }},
    {"set_data", [](Play& p, int64_t i) { p.parameter(i).set_data(at::full_like(p.parameter(i), 0.05)); }},
    {"torch::load",
     [](Play& p, int64_t) {
       auto other = make<Shaky>(7);
       other->to(p.parameter(0).scalar_type());
       if (p.model->extra) other->with_extra(Trainer::batch(0, 0, 1).first, Trainer::batch(0, 0, 1).second);
       std::ostringstream out;
       torch::serialize::OutputArchive archive;
       other->save(archive);
       archive.save_to(out);
       std::istringstream in(out.str());
       torch::load(p.model, in);
     }},
    {"to double and back",
     [](Play& p, int64_t) {
       p.model->to(at::kDouble);
       p.model->to(at::kFloat);
     }},
    {"freeze",
     [](Play& p, int64_t i) {
       if (i != 3) p.parameter(i).requires_grad_(false);
     }},
    {"thaw all",
     [](Play& p, int64_t) {
       for (auto& q : p.model->parameters()) q.requires_grad_(true);
     }},
    {"engine zero_grad", [](Play& p, int64_t) { p.t->zero_grad(); }},
    {"batch size", [](Play& p, int64_t i) { p.t->set_accumulation(i + 1); }},
    {"rate", [](Play& p, int64_t i) { p.t->set_lr(0.01 * static_cast<double>(i + 1)); }},
    {"nan",
     [](Play& p, int64_t) {
       if (p.is_16_bit()) return;  // the step is skipped there, and no error
       p.model->is_poisoned = true;
       ignoring_non_finite([&] { p.t->micro_batch(); });
       p.model->is_poisoned = false;
     }},
    {"exception in backward",
     [](Play& p, int64_t) {
       if (!p.parameter(2).requires_grad()) return;
       *p.fails = true;
       const bool is_new = p.model->has_extra && !p.model->extra;
       try {
         p.t->micro_batch();
       } catch (const std::runtime_error&) {
         if (p.side.is_plain) p.t->zero_grad();
         // LibTorch keeps the rest of that graph, and a new engine would take it for a view of the program's.
         if (is_new && p.model->extra)
           for (auto& parameter : p.model->extra->parameters()) parameter.set_data(parameter.detach().clone());
       }
       *p.fails = false;
     }},
    {"scale",
     [](Play& p, int64_t) {
       p.t->scale(p.t->forward(p.t->next++)).backward();
       p.t->step();
     }},
    {"several roots",
     [](Play& p, int64_t) {
       const at::Tensor a = p.t->forward(p.t->next++), b = p.t->forward(p.t->next++);
       torch::autograd::backward({p.t->scale(a), p.t->scale(b)}, {});
       p.t->step();
     }},
    {"two backwards",
     [](Play& p, int64_t) {
       p.t->backward(p.t->forward(p.t->next++));
       p.t->backward(p.t->forward(p.t->next++));
       p.t->step();
     }},
    {"write before step",
     [](Play& p, int64_t i) {
       p.t->backward(p.t->forward(p.t->next++));
       {
         torch::NoGradGuard no_grad;
         p.parameter(i).mul_(0.5);
       }
       p.t->step();
     }},
    {"clip by hand",
     [](Play& p, int64_t) {
       p.t->set_boundary(true);
       p.t->backward(p.t->forward(p.t->next++));
       p.t->each_gradient([](at::Tensor& gradient) { gradient.clamp_(-0.05, 0.05); });
       p.t->step();
       p.t->set_boundary(std::nullopt);
     }},
    {"auxiliary backward, cleared",
     [](Play& p, int64_t) {
       if (p.side.setting.stage > 3) return;
       const bool is_at_start = p.t->step_is_empty();
       if (!is_at_start || !(p.parameter(0).requires_grad() || p.parameter(1).requires_grad())) return;
       p.aux().backward();
       p.model->zero_grad();
     }},
    {"evaluate",
     [](Play& p, int64_t) {
       torch::NoGradGuard no_grad;
       p.t->forward(70);
     }},
    {"new trainer",
     [](Play& p, int64_t i) {
       auto old = p.t;
       old->zero_grad();
       p.model->zero_grad();
       p.t = p.side.trainer(p.model, {.accumulation = i + 1, .lr = 0.02});
       p.t->next = old->next;
       p.side.drop(old);
     }},
    {"module zero_grad", [](Play& p, int64_t) { p.model->zero_grad(); }},
    {"optimizer zero_grad",
     [](Play& p, int64_t) { torch::optim::SGD(p.model->parameters(), torch::optim::SGDOptions(0.1)).zero_grad(); }},
    {"a part's zero_grad",
     [](Play& p, int64_t i) {
       if (i % 2 == 0)
         p.model->second->zero_grad();
       else
         p.model->first->zero_grad();
     }},
    {"zero_grad before step",
     [](Play& p, int64_t i) {
       p.t->backward(p.t->forward(p.t->next++), /*create_graph=*/i == 1);
       if (i < 2)
         p.model->zero_grad();
       else
         p.parameter(i).mutable_grad().reset();
       p.t->step();
     }},
    {"zero_grad between forward and backward",
     [](Play& p, int64_t) {
       const at::Tensor loss = p.t->forward(p.t->next++);
       p.model->zero_grad();
       p.t->backward(loss);
       p.t->step();
     }},
    {"a guard that writes nothing", [](Play& p, int64_t) { under_guard(*p.t, p.model->parameters(), true, [] {}); }},
    {"a guard that writes",
     [](Play& p, int64_t i) {
       under_guard(*p.t, {p.parameter(i)}, true, [&] { i < 2 ? p.parameter(i).mul_(0.5) : p.parameter(i)[0].fill_(0.25); });
     }},
    {"a guard around set_data",
     [](Play& p, int64_t i) {
       under_guard(*p.t, {p.parameter(i)}, true, [&] { p.parameter(i).set_data(at::full_like(p.parameter(i), 0.0625)); });
     }},
    {"an average in and out",
     [](Play& p, int64_t) {
       std::vector<at::Tensor> kept;
       under_guard(*p.t, p.model->parameters(), true, [&] {
         for (auto& q : p.model->parameters()) {
           kept.push_back(q.clone());
           q.mul_(0.75);
         }
       });
       {
         torch::NoGradGuard no_grad;
         p.t->forward(70);
       }
       under_guard(*p.t, p.model->parameters(), true, [&] {
         for (size_t q = 0; q < kept.size(); ++q) p.model->parameters()[q].copy_(kept[q]);
       });
     }},
    {"a layer from now on", [](Play& p, int64_t) { p.model->has_extra = true; }},
    {"tie by set_data",
     [](Play& p, int64_t) {
       p.parameter(2).set_data(p.parameter(0).detach().view({-1}).narrow(0, 0, 64).view({4, 16}));
       p.t->train(1);
     },
     "was given the memory of parameter"},
    {"clip by LibTorch",
     [](Play& p, int64_t) {
       p.t->backward(p.t->forward(p.t->next++));
       torch::nn::utils::clip_grad_norm_(p.model->parameters(), 1.0);
     },
     "was read or written between backward() and step()"},
    {"gradient by hand",
     [](Play& p, int64_t) {
       p.parameter(3).mutable_grad() = at::ones_like(p.parameter(3)).detach();
       p.t->train(1);
       for (int64_t micro = 0; micro < 4; ++micro) p.t->micro_batch();
     },
     "found a gradient in `.grad`"},
};

struct Program {
  int64_t accumulation = 1;
  std::vector<std::pair<size_t, int64_t>> moves;
  std::string text() const {
    std::string all = "G=" + std::to_string(accumulation);
    for (const auto& [move, choice] : moves) all += std::string(", ") + kMoves[move].name + "(" + std::to_string(choice) + ")";
    return all;
  }
};

Program program_of(uint64_t seed) {
  std::mt19937_64 random(seed);
  Program program;
  program.accumulation = static_cast<int64_t>(random() % 3) + 1;
  const size_t count = 3 + random() % 6;
  for (size_t i = 0; i < count; ++i) program.moves.emplace_back(random() % std::size(kMoves), static_cast<int64_t>(random() % 4));
  return program;
}

Outcome play(const Program& program, const Setting& setting) {
  Row row;
  for (const auto& [move, choice] : program.moves)
    if (row.told.empty()) row.told = kMoves[move].told;
  row.name = program.text();
  row.program = [&](Side& side) {
    Play game(side, program.accumulation);
    for (const auto& [move, choice] : program.moves) kMoves[move].run(game, choice);
    for (int64_t micro = 0; micro < 8; ++micro) game.t->micro_batch();
  };
  return run(row, setting);
}

RANK_BODY(programs) {
  torch::set_num_threads(1);
  auto world = gannet::test::world();
  const auto number = [](const char* name) { return std::stoll(gannet::test::variable(name)); };
  const auto is_third = [&](const Program& program, const Setting& setting, std::string* why) {
    const Outcome outcome = play(program, setting);
    *why = outcome.text;
    if (outcome.kind == Outcome::kThird) std::cout << "here: " << program.text() << ": " << outcome.text << std::endl;
    if (setting.world == 1) return outcome.kind == Outcome::kThird;
    const auto all = world->world()->links().host.gather_texts(outcome.kind == Outcome::kThird ? outcome.text : "");
    return std::any_of(all.begin(), all.end(), [](const std::string& text) { return !text.empty(); });
  };
  int64_t third = 0, count = 0;
  for (const char stage : gannet::test::variable("STAGES"))
    for (int64_t seed = number("FIRST_SEED"); seed < number("FIRST_SEED") + number("PROGRAMS"); ++seed) {
      Setting setting;
      setting.stage = stage - '0';
      static const char* const kDTypes[] = {"fp32", "bf16", "fp32", "fp16"};
      setting.dtype = gannet::test::variable("DTYPE");
      if (setting.dtype.empty()) setting.dtype = kDTypes[seed % 4];
      setting.rank = world->rank();
      setting.world = world->size();
      Program program = program_of(static_cast<uint64_t>(seed) * 4 + static_cast<uint64_t>(setting.stage));
      std::string why;
      ++count;
      if (!is_third(program, setting, &why)) continue;
      ++third;
      for (size_t i = 0; i < program.moves.size();) {  // without one move after the other, as long as it fails
        Program shorter = program;
        shorter.moves.erase(shorter.moves.begin() + static_cast<ptrdiff_t>(i));
        std::string reason;
        if (is_third(shorter, setting, &reason)) {
          program = shorter;
          why = reason;
        } else {
          ++i;
        }
      }
      std::cout << "THIRD seed " << seed << " at " << setting.text() << ": " << program.text() << ": " << why << std::endl;
    }
  std::cout << "programs: " << count << std::endl;
  ranks::same(third, int64_t{0}, "third outcomes");
}

void expect_no_third(int count, const std::string& stages, int64_t programs) {
  const std::string given = gannet::test::variable("PROGRAMS"), first = gannet::test::variable("FIRST_SEED");
  ranks::expect_all_succeed(ranks::run_ranks("programs", count,
                                             {.environment = {{"STAGES", stages},
                                                              {"FIRST_SEED", first.empty() ? "0" : first},
                                                              {"PROGRAMS", given.empty() ? std::to_string(programs) : given}},
                                              .limit = std::chrono::seconds(1500)}));
}

TEST(Programs, OfHabitsOnOneRank) { expect_no_third(1, "0123", ranks::is_full() ? 250 : 40); }
TEST(Programs, OfHabitsOnTwoRanks) { expect_no_third(2, "0123", ranks::is_full() ? 250 : 20); }

}  // namespace
