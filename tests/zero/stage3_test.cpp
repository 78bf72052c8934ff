// ZeRO stage 3: parameters that come and go, on modules that know nothing of it.
#include <gannet/gannet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <thread>

#include "comm/ranks.h"
#include "engine/impl.h"
#include "engine/models.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using ranks::expect;
using ranks::run_ranks;
using testing::HasSubstr;

Dict stage3(int64_t stage = 3, Dict zero = {}, const std::string& dtype = "fp32") {
  Dict config = config_with({{"gradient_clipping", 0.5}});
  config["optimizer"] = Dict{{"type", "AdamW"}, {"params", Dict{{"lr", 1e-3}, {"eps", 1e-6}}}};
  Dict section{{"stage", stage}};
  if (stage == 3) {
    section["stage3_param_persistence_threshold"] = 0;
    section["stage3_max_reuse_distance"] = 0;
  }
  for (const auto& [key, value] : zero.entries()) section[key] = value;
  config["zero_optimization"] = section;
  if (dtype != "fp32") config[dtype] = Dict{{"enabled", true}};
  return config;
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

void contains(const std::string& text, const std::string& part) { expect(text.find(part) != std::string::npos, "'" + part + "' in: " + text); }

auto world() { return gannet::init_distributed({.timeout_seconds = 60}); }

// The whole model, from every rank.
at::Tensor parameters_of(gannet::EngineBase& engine) {
  std::vector<at::Tensor> parts;
  for (const auto& [name, master] : engine.fp32_parameters()) parts.push_back(master.flatten().to(torch::kDouble));
  return torch::cat(parts);
}

double difference(const at::Tensor& a, const at::Tensor& b) { return ((a - b).norm() / b.norm()).item<double>(); }

template <class Model>
void train(gannet::Engine<Model>& engine, int64_t steps, int64_t first = 0) {
  for (int64_t step = first; step < first + steps; ++step) {
    auto [x, y] = make_batch(step * engine.world_size() + engine.rank(), 4);
    engine.backward(engine.forward(x, y));
    engine.step();
  }
}

// A stage-0 and a stage-3 run of the same program, which must agree.
template <class Model>
void agree_with_stage_0(const std::function<std::shared_ptr<Model>()>& make, const std::function<void(gannet::Engine<Model>&)>& program, Dict zero = {},
                        const std::string& dtype = "fp32") {
  const auto run = [&](int64_t stage) {
    torch::manual_seed(3);
    auto engine = gannet::initialize(make(), {.config = stage3(stage, stage == 3 ? zero : Dict(), dtype)}).engine;
    program(*engine);
    return parameters_of(*engine);
  };
  const double apart = difference(run(3), run(0));
  expect(apart < (dtype == "fp32" ? 1e-6 : 2e-2), "stage 3 and stage 0 are " + std::to_string(apart * 1e9) + "e-9 apart");
}

// ---- What a module may do ------------------------------------------------------------------------------------------------

struct MixedImpl : torch::nn::Module {
  MixedImpl() {
    words = register_module("words", torch::nn::Embedding(19, 24));
    block = register_module("block", torch::nn::TransformerEncoderLayer(torch::nn::TransformerEncoderLayerOptions(24, 2).dim_feedforward(48).dropout(0)));
    recurrent = register_module("recurrent", torch::nn::LSTM(24, 24));
    scale = register_parameter("scale", torch::full({24}, 1.5));
    unused = register_parameter("unused", torch::ones({7, 3}));
    frozen = register_parameter("frozen", torch::ones({24, 24}) / 24, /*requires_grad=*/false);
    empty = register_parameter("empty", torch::zeros({0, 4}));
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) {
    const at::Tensor ids = (x.abs() * 100).to(torch::kLong).remainder(19);         // [batch, 8]
    at::Tensor h = words(ids).transpose(0, 1) * scale;                             // [8, batch, 24]
    h = block(h);
    h = std::get<0>(recurrent(h)) + torch::matmul(h, frozen.t());
    const at::Tensor first_rows = words->weight.slice(0, 0, 4).view({4, 24});      // a view of a tied weight
    const at::Tensor out = torch::matmul(h.mean(0), first_rows.t());
    return torch::mse_loss(out, y) + 1e-3 * scale.pow(2).sum();
  }
  torch::nn::Embedding words{nullptr};
  torch::nn::TransformerEncoderLayer block{nullptr};
  torch::nn::LSTM recurrent{nullptr};
  at::Tensor scale, unused, frozen, empty;
};

RANK_BODY(any_module) {
  world();
  for (const int64_t prefetch : {0, 500, 1'000'000})
    for (const int64_t live : {0, 2'000, 1'000'000})
      agree_with_stage_0<MixedImpl>([] { return std::make_shared<MixedImpl>(); }, [](auto& engine) { train(engine, 4); },
                                    Dict{{"stage3_prefetch_bucket_size", prefetch}, {"stage3_max_live_parameters", live}, {"stage3_max_reuse_distance", live}});
}
TEST(Stage3, TrainsModulesThatKnowNothingOfIt) {
  for (const int count : {2, 3}) ranks::expect_all_succeed(run_ranks("any_module", count));
}

// Which layer is used depends on the step; all ranks agree on it.
struct SwitchingImpl : torch::nn::Module {
  SwitchingImpl() {
    for (int i = 0; i < 3; ++i) layers.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(8, 8)));
    last = register_module("last", torch::nn::Linear(8, 4));
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) {
    const int64_t order = is_training() ? step++ : step;
    at::Tensor h = x;
    for (int64_t i = 0; i <= order % 3; ++i) h = torch::tanh(layers[(order + i) % 3](h));
    return torch::mse_loss(last(h), y);
  }
  int64_t step = 0;
  std::vector<torch::nn::Linear> layers;
  torch::nn::Linear last{nullptr};
};

RANK_BODY(changing_order) {
  world();
  agree_with_stage_0<SwitchingImpl>([] { return std::make_shared<SwitchingImpl>(); },
                                    [](auto& engine) {
                                      train(engine, 7);
                                      torch::NoGradGuard no_grad;  // an evaluation between two steps
                                      engine.eval();
                                      auto [x, y] = make_batch(5, 4);
                                      engine.forward(x, y);
                                      engine.train();
                                    });
  std::vector<std::string> lines;
  gannet::set_log_sink([&](gannet::LogLevel, const std::string& line) {
    if (line.find("has changed") != line.npos) lines.push_back(line);
  });
  auto engine = gannet::initialize(std::make_shared<SwitchingImpl>(), {.config = stage3()}).engine;
  train(*engine, 7);
  gannet::set_log_sink({});
  ranks::same(lines.size(), engine->rank() == 0 ? size_t{1} : size_t{0}, "it is said once, by rank 0");
}
TEST(Stage3, FollowsAControlFlowThatChanges) { ranks::expect_all_succeed(run_ranks("changing_order", 2)); }

// Gradient penalty: autograd::grad of the program's own between forward and backward, and a backward through it.
RANK_BODY(double_backward) {
  world();
  agree_with_stage_0<NetImpl>([] { return make_net(1, 37); },
                              [](auto& engine) {
                                for (int64_t step = 0; step < 4; ++step) {
                                  auto [x, y] = make_batch(step * engine.world_size() + engine.rank(), 4);
                                  x.requires_grad_(true);
                                  const auto loss = engine.forward(x, y);
                                  const auto slope = torch::autograd::grad({loss}, {x}, {}, true, true)[0];
                                  engine.backward(loss + slope.pow(2).sum());
                                  engine.step();
                                }
                              });
  agree_with_stage_0<NetImpl>([] { return make_net(1, 37); },
                              [](auto& engine) {
                                for (int64_t step = 0; step < 3; ++step) {
                                  auto [x, y] = make_batch(step * engine.world_size() + engine.rank(), 4);
                                  const auto loss = engine.forward(x, y);
                                  engine.backward(loss, {.retain_graph = true});
                                  engine.backward(loss * 0.5);
                                  engine.step();
                                }
                              });
}
TEST(Stage3, TakesDoubleBackwardAndSeveralBackwards) { ranks::expect_all_succeed(run_ranks("double_backward", 2)); }

RANK_BODY(fp64) {
  world();
  const auto make = [] {
    auto net = make_net(1, 37);
    net->to(torch::kDouble);
    return net;
  };
  agree_with_stage_0<NetImpl>(make, [](auto& engine) { train(engine, 4); });
  agree_with_stage_0<NetImpl>([] { return make_net(1, 37); }, [](auto& engine) { train(engine, 4); }, {}, "bf16");
}
TEST(Stage3, TrainsFp64AndBf16) { ranks::expect_all_succeed(run_ranks("fp64", 2)); }

// Two engines whose forwards and steps interleave: a student that learns from a frozen teacher which trains too.
RANK_BODY(two_engines) {
  world();
  const auto run = [](int64_t stage) {
    auto teacher = gannet::initialize(make_net(1, 21), {.config = stage3(stage)}).engine;
    auto student = gannet::initialize(make_net(2, 37), {.config = stage3(stage)}).engine;
    for (int64_t step = 0; step < 3; ++step) {
      auto [x, y] = make_batch(step * teacher->world_size() + teacher->rank(), 4);
      const auto taught = teacher->forward(x, y);
      const auto learned = student->forward(x, y);
      student->backward(learned + 0.1 * (learned - taught.detach()).pow(2));
      teacher->backward(taught);
      student->step();
      teacher->step();
    }
    return torch::cat({parameters_of(*teacher), parameters_of(*student)});
  };
  expect(difference(run(3), run(0)) < 1e-6, "two engines");
}
TEST(Stage3, SeveralEnginesLiveInOneProcess) { ranks::expect_all_succeed(run_ranks("two_engines", 2)); }

RANK_BODY(a_thread_of_the_program) {
  world();
  auto engine = gannet::initialize(make_net(1, 37), {.config = stage3()}).engine;
  auto model = engine->module();
  auto [x, y] = make_batch(engine->rank(), 4);
  const auto loss = engine->forward(x, y);
  std::string without, with;
  double norm = 0;
  std::thread([&] { without = message_of([&] { model->first->weight.norm().item<double>(); }); }).join();
  std::thread([&] {
    const auto guard = engine->guard();
    with = message_of([&] { norm = model->first->weight.norm().template item<double>(); });
  }).join();
  contains(without, "parameter 'first.weight' is shared out among the ranks");
  ranks::same(with, std::string(), "under the engine's guard");
  expect(norm > 0, "a value was read");
  engine->backward(loss);
  engine->step();
}
TEST(Stage3, AThreadOfTheProgramAsksForAGuard) { ranks::expect_all_succeed(run_ranks("a_thread_of_the_program", 2)); }

// ---- Outside of forward and backward -------------------------------------------------------------------------------------

RANK_BODY(guards) {
  for (const int64_t stage : {0, 1, 3})
    for (const char* dtype : {"fp32", "bf16"}) {
      auto engine = gannet::initialize(make_net(1, 37), {.config = stage3(stage, {}, dtype)}).engine;
      auto model = engine->module();
      const std::string what = "stage " + std::to_string(stage) + " in " + dtype + ", ";
      train(*engine, 1);
      if (stage == 3) {
        const std::string name = "parameter 'second.weight' is shared out among the ranks (ZeRO stage 3)";
        contains(message_of([&] { model->second->weight.norm(); }), name);
        contains(message_of([&] { model->second->weight.detach().t().contiguous(); }), name);
        contains(message_of([&] { model->second->weight.data_ptr(); }), name);
        ranks::same(model->second->weight.sizes().vec(), std::vector<int64_t>{4, 37}, "its shape stays");
      }
      const auto masters = engine->fp32_parameters();
      {
        gannet::zero::GatheredParameters whole(*engine, {model->second->weight});
        for (const auto& [name, master] : masters)
          if (name == "second.weight") expect(torch::equal(master.to(model->second->weight.scalar_type()), model->second->weight.detach()), what + "the value");
      }
      {
        gannet::zero::GatheredParameters whole(*engine, model->parameters(), {.write_from = 1});
        torch::NoGradGuard no_grad;
        if (engine->rank() == 1)
          for (auto& parameter : model->parameters()) parameter.fill_(0.25);
      }
      for (const auto& [name, master] : engine->fp32_parameters()) expect(master.eq(0.25).all().item<bool>(), what + "written from rank 1: " + name);
      train(*engine, 1, 1);
      for (const auto& [name, master] : engine->fp32_parameters())
        if (name == "first.bias") expect((master - 0.25).abs().max().item<double>() < 3e-3, what + "training goes on from what was written");
      // An exception takes the writing back.
      const auto before = parameters_of(*engine);
      if (stage == 3)
        message_of([&] {
          gannet::zero::GatheredParameters whole(*engine, {model->first->weight}, {.write_from = 0});
          torch::NoGradGuard no_grad;
          model->first->weight.zero_();
          throw std::runtime_error("in the guard");
        });
      expect(torch::equal(parameters_of(*engine), before), what + "an exception ended the guard");
    }
}
TEST(Stage3, GuardsHaveParametersWhole) { ranks::expect_all_succeed(run_ranks("guards", 2)); }

RANK_BODY(guard_mistakes) {
  auto engine = gannet::initialize(make_net(1, 37), {.config = stage3()}).engine;
  auto model = engine->module();
  const bool first = engine->rank() == 0;
  contains(message_of([&] { gannet::zero::GatheredParameters whole(*engine, {first ? model->first->weight : model->second->weight}); }),
           "rank 0 for parameters read first.weight, rank 1 for parameters read second.weight");
  contains(message_of([&] { gannet::zero::GatheredParameters whole(*engine, {model->first->weight}, {.write_from = first ? 0u : 1u}); }), "written from rank 1");
  contains(message_of([&] { gannet::zero::GatheredParameters whole(*engine, {torch::ones({3})}); }), "shape [3] that is no parameter");
  contains(message_of([&] { gannet::zero::GatheredParameters whole(*engine, {model->first->weight}, {.write_from = 9}); }), "write_from is rank 9");
  // Written in forward: lost, if it were let pass.
  struct Writes : torch::nn::Module {
    Writes() { weight = register_parameter("weight", torch::ones({8, 4})); }
    at::Tensor forward(const at::Tensor& x) {
      {
        torch::NoGradGuard no_grad;
        weight.mul_(0.5);
      }
      return torch::matmul(x, weight).sum();
    }
    at::Tensor weight;
  };
  auto writes = gannet::initialize(std::make_shared<Writes>(), {.config = stage3()}).engine;
  contains(message_of([&] { writes->forward(torch::ones({2, 8})); }), "operator aten::mul_ writes into parameter 'weight'");
}
TEST(Stage3, MistakesAreToldByName) { ranks::expect_all_succeed(run_ranks("guard_mistakes", 2)); }

struct ExpertsImpl : torch::nn::Module {
  ExpertsImpl() {
    for (int i = 0; i < 2; ++i) experts.push_back(register_module("expert" + std::to_string(i), torch::nn::Linear(torch::nn::LinearOptions(8, 4).bias(false))));
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y, int64_t which) { return torch::mse_loss(experts[which](x), y); }
  std::vector<torch::nn::Linear> experts;
};

// Same sizes: without the check the parts of two experts would be mixed, and nobody would know.
RANK_BODY(different_paths) {
  auto engine = gannet::initialize(std::make_shared<ExpertsImpl>(), {.config = stage3()}).engine;
  auto [x, y] = make_batch(engine->rank(), 4);
  engine->backward(engine->forward(x, y, 1));
  engine->step();
  const std::string message = message_of([&] { engine->forward(x, y, engine->rank()); });
  // What rank 1 reads was gathered ahead by both.
  contains(message, "the ranks use parameters in different orders in forward of step 2: rank " + std::string(engine->rank() == 0 ? "0 reads 'expert0.weight' where rank 1 is at the end of forward"
                                                                                                                             : "1 is at the end of forward where rank 0 reads 'expert0.weight'"));
}
TEST(Stage3, RanksThatTakeDifferentPathsAreNamed) {
  for (const auto& outcome : run_ranks("different_paths", 2)) EXPECT_EQ(outcome.status, 0) << outcome.output;
}

// ---- Values by name ------------------------------------------------------------------------------------------------------

// Each stage gives what stage 0 gives, whole; the ranks' own parts are the whole, once.
RANK_BODY(accessors) {
  const auto values_of = [](int64_t stage, const std::string& dtype) {
    auto engine = gannet::initialize(make_net(1, 37), {.config = stage3(stage, {}, dtype)}).engine;
    train(*engine, 2);
    contains(message_of([&] { engine->full_gradient("first.weight"); }), "there is no gradient of 'first.weight' now");
    auto [x, y] = make_batch(engine->rank(), 4);
    engine->backward(engine->forward(x, y));
    std::map<std::string, at::Tensor> values;
    for (const auto& name : engine->parameter_names()) {
      values["parameter " + name] = engine->full_fp32_parameter(name);
      values["gradient " + name] = engine->full_gradient(name);
      for (const auto& state : engine->optimizer_states()) values[state + " " + name] = engine->full_optimizer_state(name, state);
      int64_t covered = 0;
      const auto check = [&](const gannet::EngineBase::Local& local, const std::string& kind) {
        const at::Tensor whole = values[kind + name].flatten();
        if (!local.values.defined()) return;
        covered += local.values.numel();
        expect(torch::equal(local.values, whole.narrow(0, local.begin, local.values.numel())), kind + name + ": this rank's part");
      };
      check(engine->local_fp32_parameter(name), "parameter ");
      check(engine->local_optimizer_state(name, "exp_avg"), "exp_avg ");
      check(engine->local_gradient(name), "gradient ");
      const double all = engine->mean(static_cast<double>(covered)) * engine->world_size(), copies = stage == 0 ? engine->world_size() : 1;
      expect(all == 3.0 * static_cast<double>(values["parameter " + name].numel()) * copies, "the parts are the whole, once");
    }
    engine->step();
    // Written values are there, and training goes on from them.
    const at::Tensor half = torch::full({4, 37}, 0.5);
    engine->set_full_fp32_parameter("second.weight", half);
    engine->set_full_optimizer_state("second.weight", "exp_avg_sq", half * 0.01);
    expect(torch::equal(engine->full_fp32_parameter("second.weight"), half), "a written parameter");
    expect(torch::equal(engine->full_optimizer_state("second.weight", "exp_avg_sq"), half * 0.01), "a written state");
    train(*engine, 1, 5);
    values["after"] = engine->full_fp32_parameter("second.weight");
    contains(message_of([&] { engine->full_fp32_parameter("secnd.weight"); }), "did you mean 'second.weight'");
    contains(message_of([&] { engine->full_optimizer_state("second.weight", "velocity"); }), "exp_avg, exp_avg_sq");
    contains(message_of([&] { engine->set_full_fp32_parameter("second.weight", torch::ones({3})); }), "the parameter has [4, 37]");
    return values;
  };
  for (const char* dtype : {"fp32", "bf16"}) {
    const auto plain = values_of(0, dtype);
    for (const int64_t stage : {1, 2, 3})
      for (const auto& [name, value] : values_of(stage, dtype))
        expect(torch::allclose(value, plain.at(name), 1e-5, 1e-7), "stage " + std::to_string(stage) + " in " + dtype + ", " + name);
  }
}
TEST(Stage3, ValuesAreReadAndWrittenByName) { ranks::expect_all_succeed(run_ranks("accessors", 2)); }

// ---- Inference -----------------------------------------------------------------------------------------------------------

RANK_BODY(inference) {
  auto ranks_world = world();
  auto plain = make_net(1, 37);
  const bool first = ranks_world->rank() == 0;
  std::vector<std::string> lines;
  gannet::set_log_sink([&](gannet::LogLevel, const std::string& line) { lines.push_back(line); });
  auto engine = gannet::initialize(make_net(1, 37), {.config = stage3(), .inference = true}).engine;
  gannet::set_log_sink({});
  if (first) expect(std::any_of(lines.begin(), lines.end(), [](const auto& line) { return line.find("no effect: /optimizer") != line.npos; }), "the optimizer's lack of effect is said");
  int64_t held = 0;
  for (const auto& range : engine->impl().frozen) {
    held += range.param.numel();
    expect(!range.master.defined() && !range.grad.defined(), "nothing but parameters is kept");
  }
  expect(held <= (8 * 37 + 37 + 37 * 4 + 4) / static_cast<int64_t>(engine->world_size()) + 4 * 64, "a rank has its part: " + std::to_string(held));
  torch::NoGradGuard no_grad;
  auto [x, y] = make_batch(3, 4);
  expect(torch::equal(engine->forward(x, y), plain->forward(x, y)), "the same answer");
  contains(message_of([&] { engine->backward(torch::ones({1}, torch::requires_grad())); }), "there is no optimizer");
  // Texts of different lengths: rank r asks 2 + 3 r times, twice over.
  for (int round = 0; round < 2; ++round) {
    gannet::zero::AnswerUntilAllAreDone together(*engine);
    for (uint32_t i = 0; i < 2 + 3 * engine->rank(); ++i) {
      auto [x, y] = make_batch(10 * engine->rank() + i, 2);
      expect(torch::equal(engine->forward(x, y), plain->forward(x, y)), "an answer of a longer rank");
    }
  }
  expect(torch::equal(engine->forward(x, y), plain->forward(x, y)), "together again");
}
TEST(Stage3, AnswersWithoutAnOptimizerAndAtDifferentLengths) {
  for (const int count : {2, 3}) ranks::expect_all_succeed(run_ranks("inference", count));
}

// ---- How much is here at a time ------------------------------------------------------------------------------------------

struct DeepImpl : torch::nn::Module {
  explicit DeepImpl(int64_t width) {
    for (int i = 0; i < 8; ++i) layers.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(torch::nn::LinearOptions(width, width).bias(false))));
    in = register_module("in", torch::nn::Linear(torch::nn::LinearOptions(8, width).bias(false)));
    out = register_module("out", torch::nn::Linear(torch::nn::LinearOptions(width, 4).bias(false)));
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) {
    at::Tensor h = in(x.to(in->weight.scalar_type()));
    for (auto& layer : layers) h = torch::tanh(layer(h));
    return torch::mse_loss(out(h).to(torch::kFloat), y);
  }
  std::vector<torch::nn::Linear> layers;
  torch::nn::Linear in{nullptr}, out{nullptr};
};

RANK_BODY(peak_and_wire) {
  auto ranks_world = world();
  const int64_t width = 256, layer = width * width, total = 8 * layer + 12 * width;
  for (const int64_t prefetch : {int64_t{0}, layer, 3 * layer}) {
    auto engine = gannet::initialize(std::make_shared<DeepImpl>(width), {.config = stage3(3, Dict{{"stage3_prefetch_bucket_size", prefetch}}, "bf16")}).engine;
    auto& residency = *engine->impl().residency;
    train(*engine, 2);
    ranks::same(residency.live_bytes(), int64_t{0}, "nothing stays between steps");
    auto& comm = static_cast<gannet::CommGroup*>(ranks_world->comm_group())->comm();
    const auto before = comm.counters();
    residency.reset_peak();
    const uint64_t gathers = residency.gathers();
    auto [x, y] = make_batch(engine->rank(), 4);
    x.requires_grad_(true);  // so that backward reads the first layer too
    engine->backward(engine->forward(x, y));
    engine->step();
    const int64_t bound = 2 * (2 * layer + prefetch);
    expect(residency.peak_bytes() <= bound, "peak " + std::to_string(residency.peak_bytes()) + " of " + std::to_string(bound) + " bytes, prefetch " + std::to_string(prefetch));
    expect(prefetch == 0 || residency.peak_bytes() > 2 * layer, "something is gathered ahead");
    ranks::same(residency.gathers() - gathers, uint64_t{2 * 10}, "each once in forward and once in backward");
    const double size = engine->world_size(), sent = static_cast<double>(comm.counters().bytes_sent - before.bytes_sent);
    const double formula = 2 * 3 * total * (size - 1) / size;
    expect(sent >= formula && sent < 1.03 * formula, "sent " + std::to_string(sent) + " of " + std::to_string(formula));
  }
  // What is used again soon stays: 2 P instead of 3 P travel.
  auto engine = gannet::initialize(std::make_shared<DeepImpl>(width), {.config = stage3(3, Dict{{"stage3_max_reuse_distance", 1'000'000'000}}, "bf16")}).engine;
  train(*engine, 2);
  const uint64_t gathers = engine->impl().residency->gathers();
  train(*engine, 1, 2);
  ranks::same(engine->impl().residency->gathers() - gathers, uint64_t{10}, "each once a step");
}
TEST(Stage3, HasWhatIsNeededAndSendsWhatTheFormulaSays) {
  for (const int count : {2, 4}) ranks::expect_all_succeed(run_ranks("peak_and_wire", count));
}

// The module outlives its engine: it can be looked at, and says why it cannot be read.
RANK_BODY(a_dead_engine) {
  auto model = make_net(1, 37);
  gannet::initialize(model, {.config = stage3()});
  ranks::same(model->first->weight.numel(), int64_t{8 * 37}, "its shape");
  contains(message_of([&] { model->first->weight.norm(); }), "went with the engine");
}
TEST(Stage3, AModuleOutlivesItsEngine) { ranks::expect_all_succeed(run_ranks("a_dead_engine", 2)); }

}  // namespace
