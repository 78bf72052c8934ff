// All that operators save for backward on a tier: gradients are those of the plain run, and LibTorch's memory holds little of it.
#include <gannet/gannet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "activation/blocks.h"
#include "activation/counted.h"
#include "activation/error_of.h"
#include "activation/saved_store.h"
#include "engine/impl.h"
#include "engine/models.h"
#include "offload/faulty_calls.h"
#include "plugin/support.h"

namespace gannet::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A model that is a function of the test's, over one weight.
struct FunctionImpl : torch::nn::Module {
  using Body = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& weight)>;
  FunctionImpl(const at::Tensor& value, Body body) : body(std::move(body)) {
    weight = register_parameter("weight", value.clone());
  }
  at::Tensor forward(const at::Tensor& x) { return body(x, weight); }
  Body body;
  at::Tensor weight;
};

class Keep : public CountedMemory, public testing::WithParamInterface<const char*> {
 protected:
  // One thread: on a busy machine, those of small operators wait for each other most of the time.
  void SetUp() override { at::set_num_threads(1); }
  void TearDown() override { at::set_num_threads(threads_); }
  Dict config(const std::string& keep) {
    Dict config = config_with({{"optimizer", Dict{{"type", "AdamW"}, {"params", Dict{{"lr", 1e-3}}}}}});
    if (keep != "device")
      config["gannet"] = Dict{{"activation_checkpointing", Dict{{"keep", keep}, {"nvme_path", folder_.string()}}}};
    return config;
  }
  auto engine_of(const std::string& keep, const at::Tensor& weight, FunctionImpl::Body body) {
    return gannet::initialize(std::make_shared<FunctionImpl>(weight, std::move(body)), {.config = config(keep)}).engine;
  }
  TemporaryFolder folder_;

 private:
  const int threads_ = at::get_num_threads();
};
INSTANTIATE_TEST_SUITE_P(Offload, Keep, testing::Values("cpu", "nvme"));

uint64_t bytes_on_tier(EngineBase& engine) {
  const auto& saved = engine.impl().activations.saved;
  return saved ? saved->tier().bytes() : 0;
}

// Widths whose tensors are above the threshold; dropout in attention too, so that a generator is drawn from.
TEST_P(Keep, StepsAndRandomNumbersAreThoseOfThePlainRun) {
  const auto run = [&](const std::string& keep, Recompute recompute) {
    auto engine = gannet::initialize(make_transformer(recompute, 4, 64, 4, 0.1), {.config = config(keep)}).engine;
    torch::manual_seed(3);
    std::vector<at::Tensor> all;
    for (int64_t step = 0; step < 2; ++step) {
      const auto [ids, targets] = words_of(step, 4, 96);
      const at::Tensor loss = engine->forward(ids, targets);
      all.push_back(loss.detach().clone());
      engine->backward(loss);
      engine->step();
    }
    all.push_back(torch::randn({3}));
    for (const auto& [name, value] : engine->fp32_parameters()) all.push_back(value.clone());
    EXPECT_EQ(bytes_on_tier(*engine) > 0, keep != "device");
    return all;
  };
  const auto plain = run("device", Recompute::kNothing);
  // Regions of the program keep only their inputs, on the tier.
  for (const Recompute recompute : {Recompute::kNothing, Recompute::kBlocks, Recompute::kGroups}) {
    const auto found = run(GetParam(), recompute);
    ASSERT_EQ(found.size(), plain.size());
    for (size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(at::equal(found[i], plain[i])) << i;
  }
}

constexpr int64_t kSide = 512, kMatrix = kSide * kSide * 4;  // 1 MiB

// Blocks that save eight tensors of 1 MiB each; a transformer's saves more.
at::Tensor chain(const at::Tensor& x, const at::Tensor& weight, int blocks) {
  at::Tensor y = x;
  for (int i = 0; i < 2 * blocks; ++i) y = ((y.matmul(weight).tanh() * y).sigmoid() * 1.5).exp().sin();
  return y;
}

TEST_P(Keep, AtMostTwoBlocksSavedTensorsStayInLibTorchsMemory) {
  constexpr int kBlocks = 5;
  const at::Tensor weight = torch::randn({kSide, kSide}) / 30, x = torch::randn({kSide, kSide});
  struct Found {
    double forward, peak;  // MiB, above what there was
  };
  const auto run = [&](const std::string& keep) {
    auto engine =
        engine_of(keep, weight, [](const at::Tensor& x, const at::Tensor& weight) { return chain(x, weight, kBlocks).sum(); });
    Found found{};
    for (int step = 0; step < 2; ++step) {  // the second with states, and with memory that is used again
      const int64_t start = Counting::live;
      Counting::peak = start;
      at::Tensor loss = engine->forward(x);
      found.forward = static_cast<double>(Counting::live - start) / kMatrix;
      engine->backward(loss);
      found.peak = static_cast<double>(Counting::peak - start) / kMatrix;
      loss.reset();
      engine->step();
    }
    return found;
  };
  const Found plain = run("device"), kept = run(GetParam());
  const double block = plain.forward / kBlocks;
  EXPECT_NEAR(block, 8, 0.3);
  EXPECT_LE(kept.forward, 2 * block);
  EXPECT_LE(kept.peak, 2 * block) << "with the gradients that a backward makes; plain " << plain.peak;
  if (std::string(GetParam()) == "cpu") EXPECT_LE(kept.forward, 1) << "nothing is on its way";
}

TEST_P(Keep, AStorageIsKeptOnceAndWhatHasAnOwnerNever) {
  const at::Tensor weight = torch::randn({kSide, kSide}) / 30, x = torch::randn({kSide, kSide});
  const auto on_tier = [&](FunctionImpl::Body body) {
    auto engine = engine_of(GetParam(), weight, std::move(body));
    const at::Tensor loss = engine->forward(x);
    const uint64_t bytes = bytes_on_tier(*engine);
    engine->backward(loss);
    engine->step();
    EXPECT_EQ(bytes_on_tier(*engine), bytes) << "of earlier steps is used again";
    return bytes;
  };
  // y by several operators, whole and as views of it.
  EXPECT_EQ(on_tier([](const at::Tensor& x, const at::Tensor& w) {
              const at::Tensor y = (x + w).tanh();
              return (y * y.t() + y.narrow(0, 0, kSide / 2).exp().sum() + y.sin()).sum() * 1e-3;
            }),
            uint64_t{kMatrix} + kMatrix / 2)
      << "y, and exp's own result of half its rows";
  EXPECT_EQ(on_tier([](const at::Tensor& x, const at::Tensor& w) { return (w.t() * w.narrow(1, 0, kSide)).sum(); }), 0u);
  // Only these rows of a larger tensor of the program.
  const at::Tensor data = torch::randn({16 * kSide, kSide});
  EXPECT_EQ(on_tier([&](const at::Tensor&, const at::Tensor& w) { return data.narrow(0, 3 * kSide, kSide).matmul(w).sum(); }),
            uint64_t{kMatrix});
  // Below the threshold.
  EXPECT_EQ(on_tier([](const at::Tensor&, const at::Tensor& w) { return w.narrow(0, 0, 4).contiguous().tanh().exp().sum(); }),
            0u);
}

// Views with gaps, expanded ones, other types, a complex one, a first gradient that is differentiated again.
TEST_P(Keep, TensorsComeBackAsTheyWere) {
  const at::Tensor weight = torch::linspace(-1, 1, 384 * 256).view({384, 256});
  const auto body = [](const at::Tensor& x, const at::Tensor& w) {
    const at::Tensor y = (x * w).tanh();                                 // [384, 256]
    const at::Tensor turned = y.t().narrow(1, 8, 288);                   // with gaps
    const at::Tensor wide = y.narrow(1, 0, 1).expand({384, 256}).sin();  // strides of 0
    const at::Tensor half = y.to(torch::kBFloat16).exp();                // another type
    const at::Tensor complex = at::complex(y, y * 2);
    const at::Tensor index = (torch::arange(256 * 96) % 384).view({96, 256});  // int64
    return turned.exp().sum() + (wide * y).sum() + half.to(torch::kFloat).sum() + (complex * complex).abs().sum() +
           y.gather(0, index).square().sum() + (y > 0).to(torch::kFloat).mul(y).sum();
  };
  const at::Tensor x = torch::linspace(0.5, 1, 384 * 256).view({384, 256});
  const auto run = [&](const std::string& keep) {
    auto engine = engine_of(keep, weight, body);
    const at::Tensor loss = engine->forward(x), w = engine->module()->weight;
    const auto first = torch::autograd::grad({loss}, {w}, {}, /*retain_graph=*/true)[0];
    const auto second = torch::autograd::grad({loss}, {w}, {}, /*retain_graph=*/true)[0];
    EXPECT_TRUE(at::equal(first, second));
    const auto differentiable = torch::autograd::grad({loss}, {w}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    const auto twice = torch::autograd::grad({differentiable.square().sum() + loss}, {w})[0];
    return torch::stack({first, differentiable.detach(), twice});
  };
  const at::Tensor plain = run("device");
  EXPECT_TRUE(at::equal(run(GetParam()), plain));
}

// unsafe_chunk gives each chunk a version counter of its own, as LibTorch's GRU and LSTM cells use it: what one writes in place,
// the other's counter does not show.
TEST_P(Keep, ChunksWithCountersOfTheirOwnAreKeptApart) {
  const at::Tensor weight = torch::randn({256, 256}) / 16, x = torch::randn({256, 256});
  const auto gradient = [&](const std::string& keep) {
    auto engine = engine_of(keep, weight, [](const at::Tensor& x, const at::Tensor& w) {
      const auto chunks = at::matmul(x, w).unsafe_chunk(2, 1);
      const at::Tensor a = chunks[0].sigmoid_(), b = chunks[1].tanh_();
      return (a * b).sum();
    });
    engine->backward(engine->forward(x));
    return engine->full_gradient("weight").clone();
  };
  EXPECT_TRUE(at::equal(gradient(GetParam()), gradient("device")));
}

TEST_P(Keep, RecurrentLayersTrainAsWithoutIt) {
  struct RecurrentImpl : torch::nn::Module {
    RecurrentImpl() {
      torch::manual_seed(2);
      gru = register_module("gru", torch::nn::GRU(torch::nn::GRUOptions(64, 64).batch_first(true)));
      lstm = register_module("lstm", torch::nn::LSTMCell(64, 64));
    }
    at::Tensor forward(const at::Tensor& x) {
      const at::Tensor y = std::get<0>(gru(x));
      return std::get<0>(lstm(y.select(1, 3))).square().mean() + y.square().mean();
    }
    torch::nn::GRU gru{nullptr};
    torch::nn::LSTMCell lstm{nullptr};
  };
  torch::manual_seed(3);
  const at::Tensor x = torch::randn({512, 4, 64});
  const auto run = [&](const std::string& keep) {
    auto engine = gannet::initialize(std::make_shared<RecurrentImpl>(), {.config = config(keep)}).engine;
    for (int step = 0; step < 2; ++step) {
      engine->backward(engine->forward(x));
      engine->step();
    }
    std::vector<at::Tensor> all;
    for (const auto& [name, value] : engine->fp32_parameters()) all.push_back(value.flatten());
    return at::cat(all);
  };
  EXPECT_TRUE(at::equal(run(GetParam()), run("device")));
}

TEST_P(Keep, ASavedTensorThatIsChangedInPlaceIsAnError) {
  const at::Tensor weight = torch::randn({kSide, kSide}), x = torch::randn({kSide, kSide});
  at::Tensor seen;
  const auto large = engine_of(GetParam(), weight, [&](const at::Tensor& x, const at::Tensor& w) {
    seen = (x * w).tanh();
    return seen.exp().sum();
  });
  at::Tensor loss = large->forward(x);
  {
    const torch::NoGradGuard no_grad;
    seen.narrow(0, 0, 1).zero_();
  }
  EXPECT_THAT(activation_error([&] { large->backward(loss); }).message(),
              AllOf(HasSubstr("saved for backward was changed in place"), HasSubstr("[512, 512]")));
  // One that stays, because it is small.
  const auto small = engine_of(GetParam(), weight, [&](const at::Tensor& x, const at::Tensor& w) {
    seen = (x * w).narrow(0, 0, 2).tanh();
    return seen.exp().sum();
  });
  loss = small->forward(x);
  {
    const torch::NoGradGuard no_grad;
    seen.zero_();
  }
  EXPECT_THAT(activation_error([&] { small->backward(loss); }).message(), HasSubstr("saved for backward was changed in place"));
  // A tensor is saved with the values of that moment; after a change it is saved again.
  const auto body = [](const at::Tensor& x, const at::Tensor& w) {
    at::Tensor y = x * w;
    y.mul_(0.5);
    const at::Tensor a = y.sin();  // saves y
    at::Tensor b = y.detach();     // shares it
    return (a + b).sum() + (y.clone().mul_(2).tanh() * w).sum();
  };
  const auto gradient = [&](const std::string& keep) {
    const auto engine = engine_of(keep, weight, body);
    return torch::autograd::grad({engine->forward(x)}, {engine->module()->weight})[0];
  };
  EXPECT_TRUE(at::equal(gradient(GetParam()), gradient("device")));
}

TEST_P(Keep, EvaluationsAndOtherEnginesAreAsWithout) {
  const at::Tensor weight = torch::randn({kSide, kSide}) / 30, x = torch::randn({kSide, kSide});
  const auto body = [](const at::Tensor& x, const at::Tensor& w) { return chain(x, w, 2).sum(); };
  const auto kept = engine_of(GetParam(), weight, body), other = engine_of("device", weight, body);
  {
    const torch::NoGradGuard no_grad;
    kept->forward(x);
  }
  kept->eval();
  kept->forward(x);
  EXPECT_EQ(bytes_on_tier(*kept), 0u);
  kept->train();
  for (int step = 0; step < 2; ++step) {
    const at::Tensor one = kept->forward(x), two = other->forward(x);
    EXPECT_EQ(activation::keeper_here(), nullptr);
    other->backward(two);
    kept->backward(one);
    kept->step();
    other->step();
  }
  EXPECT_GT(bytes_on_tier(*kept), 0u);
  EXPECT_TRUE(at::equal(kept->module()->weight, other->module()->weight));
}

// The loss outlives the engine, and with it the tier.
TEST_P(Keep, AGraphMayOutliveItsEngine) {
  const at::Tensor weight = torch::randn({kSide, kSide}) / 30, x = torch::randn({kSide, kSide}, torch::requires_grad());
  const auto run = [&](const std::string& keep) {
    at::Tensor loss;
    {
      auto engine =
          engine_of(keep, weight, [](const at::Tensor& x, const at::Tensor& w) { return chain(x, w.detach(), 2).sum(); });
      loss = engine->forward(x);
    }
    return torch::autograd::grad({loss}, {x})[0];
  };
  EXPECT_TRUE(at::equal(run(GetParam()), run("device")));
}

class KeepMistakes : public Keep {};

TEST_F(KeepMistakes, SettingsThatContradictAreRefused) {
  const auto refusal = [&](const Dict& own, const Dict& section) {
    Dict all = config("device");
    all["gannet"] = Dict{{"activation_checkpointing", own}};
    all["activation_checkpointing"] = section;
    return activation_error(
        [&] { gannet::initialize(std::make_shared<FunctionImpl>(torch::ones({2, 2}), FunctionImpl::Body()), {.config = all}); });
  };
  const std::vector<std::tuple<Dict, Dict, const char*>> contradictions = {
      {Dict{{"keep", "cpu"}, {"recompute", List{"gelu"}}}, Dict(), "recompute"},
      {Dict{{"keep", "cpu"}, {"interval", 2}}, Dict(), "interval"},
      {Dict{{"keep", "cpu"}, {"memory_limit", "1GB"}}, Dict(), "memory_limit"},
      {Dict{{"keep", "cpu"}}, Dict{{"number_checkpoints", 2}}, "number_checkpoints"},
      {Dict{{"keep", "cpu"}}, Dict{{"cpu_checkpointing", true}}, "cpu_checkpointing"},
      {Dict{{"keep", "cpu"}}, Dict{{"partition_activations", true}}, "partition_activations"}};
  for (const auto& [own, section, key] : contradictions) {
    const Error error = refusal(own, section);
    EXPECT_EQ(error.code(), ErrorCode::kConfig) << key;
    EXPECT_THAT(error.message(), AllOf(HasSubstr("keep is 'cpu'"), HasSubstr(std::string(key) + " asks for regions"))) << key;
  }
  EXPECT_THAT(refusal(Dict{{"keep", "nvmee"}}, Dict()).message(), AllOf(HasSubstr("nvmee"), HasSubstr("did you mean 'nvme'")));
  EXPECT_THAT(refusal(Dict{{"keep", "nvme"}}, Dict()).message(), HasSubstr("nvme_path"));
}

TEST_F(KeepMistakes, AFullDriveIsSaidWithItsPathAndTheBytes) {
  TemporaryFolder folder;
  Dict all = config("nvme");
  all["gannet"] = Dict{{"activation_checkpointing", Dict{{"keep", "nvme"}, {"nvme_path", folder.string()}}}};
  const at::Tensor weight = torch::randn({kSide, kSide}) / 30, x = torch::randn({kSide, kSide});
  int blocks = 4;
  auto model = std::make_shared<FunctionImpl>(weight, [&](const at::Tensor& x, const at::Tensor& w) {
    return blocks == 1 ? (x * w).tanh().sum() : chain(x, w, blocks).sum();
  });
  auto engine = gannet::initialize(model, {.config = all}).engine;
  FaultyCalls faults;
  faults.fail("fallocate", ENOSPC, 1);
  const Error full = activation_error([&] { engine->forward(x); });
  EXPECT_EQ(full.code(), ErrorCode::kIo);
  EXPECT_THAT(full.message(), AllOf(HasSubstr("saved tensor"), HasSubstr("Float [512, 512]"), HasSubstr("1.0 MB"),
                                    HasSubstr(folder.string()), HasSubstr("No space left on device")));
  // The engine continues with a smaller batch, or once there is room again.
  for (const int next : {1, 4}) {
    blocks = next;
    engine->backward(engine->forward(x));
    engine->step();
  }
}

}  // namespace
}  // namespace gannet::test
