// ZeRO stage 3: parameters that come and go, on modules that know nothing of it.
#include <gannet/gannet.h>
#include <gtest/gtest.h>

#include <thread>

#include "control/world.h"
#include "engine/impl.h"
#include "zero/support.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using ranks::expect;
using ranks::run_ranks;

// A stage-0 and a stage-3 run of the same program, which must agree.
template <class Model>
void agree_with_stage_0(const std::function<std::shared_ptr<Model>()>& make,
                        const std::function<void(gannet::Engine<Model>&)>& program, Dict zero = {},
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

// ---- Allowed in modules ------------------------------------------------------------------------------------------------

struct MixedImpl : torch::nn::Module {
  MixedImpl() {
    words = register_module("words", torch::nn::Embedding(19, 24));
    block = register_module("block", torch::nn::TransformerEncoderLayer(
                                         torch::nn::TransformerEncoderLayerOptions(24, 2).dim_feedforward(48).dropout(0)));
    recurrent = register_module("recurrent", torch::nn::LSTM(24, 24));
    scale = register_parameter("scale", torch::full({24}, 1.5));
    unused = register_parameter("unused", torch::ones({7, 3}));
    frozen = register_parameter("frozen", torch::ones({24, 24}) / 24, /*requires_grad=*/false);
    empty = register_parameter("empty", torch::zeros({0, 4}));
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) {
    const at::Tensor ids = (x.abs() * 100).to(torch::kLong).remainder(19);  // [batch, 8]
    at::Tensor h = words(ids).transpose(0, 1) * scale;                      // [8, batch, 24]
    h = block(h);
    h = std::get<0>(recurrent(h)) + torch::matmul(h, frozen.t());
    const at::Tensor first_rows = words->weight.slice(0, 0, 4).view({4, 24});  // a view of a tied weight
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
                                    Dict{{"stage3_prefetch_bucket_size", prefetch},
                                         {"stage3_max_live_parameters", live},
                                         {"stage3_max_reuse_distance", live}});
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

// ---- Ranks that do different things --------------------------------------------------------------------------------------

struct ExpertsImpl : torch::nn::Module {
  ExpertsImpl() {
    for (int i = 0; i < 2; ++i)
      experts.push_back(
          register_module("expert" + std::to_string(i), torch::nn::Linear(torch::nn::LinearOptions(8, 4).bias(false))));
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y, int64_t which) { return torch::mse_loss(experts[which](x), y); }
  std::vector<torch::nn::Linear> experts;
};

// Same sizes: without the check the parts of two experts would be mixed silently.
RANK_BODY(different_paths) {
  auto engine = gannet::initialize(std::make_shared<ExpertsImpl>(), {.config = stage3()}).engine;
  auto [x, y] = make_batch(engine->rank(), 4);
  engine->backward(engine->forward(x, y, 1));
  engine->step();
  const std::string message = message_of([&] { engine->forward(x, y, engine->rank()); });
  // The parameters that rank 1 reads were prefetched by both.
  contains(message, "the ranks use parameters in different orders in forward of step 2: rank " +
                        std::string(engine->rank() == 0 ? "0 reads 'expert0.weight' where rank 1 is at the end of forward"
                                                        : "1 is at the end of forward where rank 0 reads 'expert0.weight'"));
}
TEST(Stage3, RanksThatTakeDifferentPathsAreNamed) {
  for (const auto& outcome : run_ranks("different_paths", 2)) EXPECT_EQ(outcome.status, 0) << outcome.output;
}

// ---- How much is here at a time ------------------------------------------------------------------------------------------

struct WideLayersImpl : torch::nn::Module {
  explicit WideLayersImpl(int64_t width) {
    for (int i = 0; i < 8; ++i)
      layers.push_back(
          register_module("layer" + std::to_string(i), torch::nn::Linear(torch::nn::LinearOptions(width, width).bias(false))));
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
    auto engine = gannet::initialize(std::make_shared<WideLayersImpl>(width),
                                     {.config = stage3(3, Dict{{"stage3_prefetch_bucket_size", prefetch}}, "bf16")})
                      .engine;
    auto& residency = *engine->impl().store.residency();
    train(*engine, 2);
    ranks::same(residency.live_bytes(), int64_t{0}, "nothing stays between steps");
    auto& comm = ranks_world->links().device().comm();
    const auto before = comm.counters();
    residency.reset_peak();
    const uint64_t gathers = residency.gathers();
    auto [x, y] = make_batch(engine->rank(), 4);
    x.requires_grad_(true);  // so that backward reads the first layer too
    engine->backward(engine->forward(x, y));
    engine->step();
    const int64_t bound = 2 * (2 * layer + prefetch);
    expect(residency.peak_bytes() <= bound, "peak " + std::to_string(residency.peak_bytes()) + " of " + std::to_string(bound) +
                                                " bytes, prefetch " + std::to_string(prefetch));
    expect(prefetch == 0 || residency.peak_bytes() > 2 * layer, "something is gathered ahead");
    ranks::same(residency.gathers() - gathers, uint64_t{2 * 10}, "each once in forward and once in backward");
    const double size = engine->world_size(), sent = static_cast<double>(comm.counters().bytes_sent - before.bytes_sent);
    const double formula = 2 * 3 * total * (size - 1) / size;
    expect(sent >= formula && sent < 1.03 * formula, "sent " + std::to_string(sent) + " of " + std::to_string(formula));
  }
  // Parameters that are soon used again stay gathered: 2 P instead of 3 P travel.
  auto engine = gannet::initialize(std::make_shared<WideLayersImpl>(width),
                                   {.config = stage3(3, Dict{{"stage3_max_reuse_distance", 1'000'000'000}}, "bf16")})
                    .engine;
  train(*engine, 2);
  const uint64_t gathers = engine->impl().store.residency()->gathers();
  train(*engine, 1, 2);
  ranks::same(engine->impl().store.residency()->gathers() - gathers, uint64_t{10}, "each once a step");
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
