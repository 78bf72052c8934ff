// from_pretrained and generate on several ranks.
#include "comm/ranks.h"

#include <gannet/fill_auto.h>
#include <gannet/gannet.h>
#include <gannet/models/gpt2.h>
#include <gannet/models/llama.h>
#include <gannet/models/t5.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "activation/counting.h"
#include "models/fixture.h"
#include "tensor/flat_buffer.h"

namespace {

using gannet::Dict;
using gannet::test::CountingAllocator;
using ranks::expect;
using ranks::run_ranks;

Dict config_of(int64_t stage) {
  return {
      {"train_micro_batch_size_per_gpu", 2},
      {"optimizer", Dict{{"type", "AdamW"}, {"params", Dict{{"lr", 1e-3}}}}},
      {"zero_optimization", Dict{{"stage", stage}, {"stage3_param_persistence_threshold", 0}, {"stage3_max_reuse_distance", 0}}}};
}

// Every folder, every dtype of the model, at stage 3: the values of a load on one rank.
RANK_BODY(loads) {
  auto world = gannet::init_distributed({.timeout_seconds = 120});
  const Dict config = config_of(3);
  for (const std::string name : {"gpt2", "gpt2_shards", "gpt2_bin"})
    for (const std::string dtype : {"float32", "bfloat16"}) {
      const auto whole = gannet::from_pretrained<gannet::models::Gpt2>(fixture::folder(name), {.dtype = dtype});
      gannet::PretrainedReceipt receipt;
      const auto model =
          gannet::from_pretrained<gannet::models::Gpt2>(fixture::folder(name), {.config = config, .dtype = dtype}, &receipt);
      ranks::same(receipt.loaded, 28, "tensors");
      auto engine = gannet::initialize(model, {.config = config}).engine;
      const auto found = engine->fp32_parameters();
      const auto expected = whole->named_parameters();
      ranks::same(found.size(), expected.size(), "parameters");
      for (const auto& [parameter, values] : found)
        expect(at::equal(values, expected[parameter].detach().to(at::kFloat)), name + " as " + dtype + ": " + parameter);
    }
}
TEST(PretrainedOnRanks, EachReadsItsShardsOfEveryKindOfFolder) {
  for (const int count : {2, 3}) ranks::expect_all_succeed(run_ranks("loads", count));
}

gannet::models::LlamaConfig large() {
  gannet::models::LlamaConfig config;
  config.vocab_size = 4096;
  config.hidden_size = 512;
  config.intermediate_size = 1024;
  config.num_hidden_layers = 4;
  config.num_attention_heads = 8;
  return config;
}

// The test below has written the folder. By hand, with any Llama's:
//   FOLDER=llama-1b PEAK_ALONE=1 GANNET_TEST_RANK_BODY=memory build/bin/gannet run --num_procs 4 build/tests/models_ranks_test
RANK_BODY(memory) {
  auto* const counting = new CountingAllocator;
  c10::SetCPUAllocator(counting, /*priority=*/100);
  auto world = gannet::init_distributed({.timeout_seconds = 120});
  const Dict config = config_of(3);
  const std::string folder = std::getenv("FOLDER");
  const int64_t before = CountingAllocator::live + gannet::flat_bytes_alive();
  CountingAllocator::peak = CountingAllocator::live.load();
  auto model = gannet::from_pretrained<gannet::models::Llama>(folder, {.config = config});
  int64_t parameters = 0, largest = 0;
  for (const at::Tensor& parameter : model->parameters()) {
    parameters += parameter.numel();
    largest = std::max(largest, parameter.numel());
  }
  const double bound = 1.05 * 4.0 * static_cast<double>(parameters / world->size() + largest),
               peak = static_cast<double>(CountingAllocator::peak + gannet::flat_bytes_alive() - before);
  std::printf("peak %.2f MiB of %.2f MiB: the shard %.2f, the largest tensor %.2f\n", peak / 0x1p20, bound / 0x1p20,
              4.0 * static_cast<double>(parameters / world->size()) / 0x1p20, 4.0 * static_cast<double>(largest) / 0x1p20);
  expect(peak <= bound, "the peak is " + std::to_string(peak) + " bytes, the bound " + std::to_string(bound));
  if (std::getenv("PEAK_ALONE")) return;
  // Nothing of it is lost on the way into the engine.
  auto engine = gannet::initialize(model, {.config = config, .inference = true}).engine;
  const auto whole = gannet::load_safetensors(folder + "/model.safetensors");
  gannet::zero::GatheredParameters guard(*engine, model->parameters());
  for (const auto& entry : model->named_parameters()) expect(at::equal(entry.value(), whole.at(entry.key())), entry.key());
}
TEST(PretrainedOnRanks, TakeAShardAndTheTensorThatIsBuilt) {
  char folder[] = "/tmp/gannet-pretrained-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  {
    gannet::models::Llama model(large());
    gannet::save_weights(*model, std::string(folder) + "/model.safetensors");
    std::ofstream(std::string(folder) + "/config.json")
        << R"({"model_type": "llama", "vocab_size": 4096, "hidden_size": 512, "intermediate_size": 1024,
              "num_hidden_layers": 4, "num_attention_heads": 8})";
  }
  ranks::expect_all_succeed(run_ranks("memory", 2, {.environment = {{"FOLDER", folder}}}));
  std::filesystem::remove_all(folder);
}

// Values that only the arguments know are "auto" until the engine is made; ZeRO's sizes follow from
// config.json.
RANK_BODY(auto_values) {
  auto world = gannet::init_distributed({.timeout_seconds = 120});
  gannet::Config config(Dict{{"train_batch_size", "auto"},
                             {"train_micro_batch_size_per_gpu", "auto"},
                             {"gradient_accumulation_steps", "auto"},
                             {"optimizer", Dict{{"type", "AdamW"}, {"params", Dict{{"lr", "auto"}}}}},
                             {"zero_optimization", Dict{{"stage", 3},
                                                        {"reduce_bucket_size", "auto"},
                                                        {"stage3_prefetch_bucket_size", "auto"},
                                                        {"stage3_param_persistence_threshold", "auto"}}}});
  const std::string folder = fixture::folder("t5");
  const auto whole = gannet::from_pretrained<gannet::models::T5>(folder);
  const auto model = gannet::from_pretrained<gannet::models::T5>(folder, {.config = config});
  const int64_t threshold = 10 * model->config().d_model;  // the default, 100000, would leave every parameter whole
  for (const auto& entry : model->named_parameters()) {
    bool is_whole = true;
    try {
      entry.value().data_ptr();
    } catch (const std::exception&) {
      is_whole = false;
    }
    ranks::same(is_whole, entry.value().numel() <= threshold, entry.key());
  }
  // An engine may keep more of them whole than the model's building did.
  {
    auto engine = gannet::initialize(gannet::from_pretrained<gannet::models::T5>(folder, {.config = config}),
                                     {.config = Dict{{"train_batch_size", 2},
                                                     {"optimizer", Dict{{"type", "AdamW"}, {"params", Dict{{"lr", 1e-3}}}}},
                                                     {"zero_optimization", Dict{{"stage", 3}}}}})
                      .engine;
    for (const auto& [name, values] : engine->fp32_parameters())
      expect(at::equal(values, whole->named_parameters()[name].detach()), name);
  }
  gannet::fill_auto(config, Dict{{"per_device_train_batch_size", 2}},
                    {.world_size = world->size(), .hidden_size = model->config().d_model, .add_missing = false});
  auto engine = gannet::initialize(model, {.config = config}).engine;
  const auto expected = whole->named_parameters();
  for (const auto& [name, values] : engine->fp32_parameters()) expect(at::equal(values, expected[name].detach()), name);
}
TEST(PretrainedOnRanks, TakeAnAutoBeforeTheArgumentsFillIt) { ranks::expect_all_succeed(run_ranks("auto_values", 2)); }

// Ranks with prompts of different lengths and numbers, none included, write what one rank writes.
RANK_BODY(generates) {
  auto world = gannet::init_distributed({.timeout_seconds = 120});
  const auto rank = static_cast<size_t>(world->rank());
  const Dict config = config_of(std::atoi(std::getenv("STAGE")));
  const auto run = [&]<class Model>(std::type_identity<Model>, const std::string& name) {
    const fixture::Expected expected(name);
    const gannet::TokenLists prompts = expected.texts("prompt");
    auto model = gannet::from_pretrained<Model>(fixture::folder(name), {.config = config});
    auto engine = gannet::initialize(model, {.config = config}).engine;
    for (const int64_t beams : {int64_t{1}, fixture::kBeams}) {
      gannet::GenerateOptions options;
      options.max_new_tokens = fixture::kNewTokens;
      options.stop_tokens = expected.text("stop");
      options.num_beams = beams;
      const gannet::TokenLists all = expected.texts(beams > 1 ? "beams" : "greedy");
      // Rank 0: the last prompt. Rank 1: two of them. Others: none.
      gannet::TokenLists mine, wanted;
      for (size_t i = 0; i < prompts.size(); ++i)
        if ((rank == 0 && i == 2) || (rank == 1 && i < 2)) mine.push_back(prompts[i]), wanted.push_back(all[i]);
      expect(gannet::generate(engine, mine, options) == wanted, name + ": the texts of rank " + std::to_string(rank));
    }
    expect(engine->module()->is_training(), "it trains as before");
    // And the engine trains on: every rank is where the others are.
    const at::Tensor tokens = torch::arange(2, 12).view({1, 10});
    engine->backward(engine->forward(tokens, tokens, std::nullopt));
    expect(engine->step().applied, "a step after it");
  };
  run(std::type_identity<gannet::models::Gpt2>(), "gpt2");
  run(std::type_identity<gannet::models::Llama>(), "mistral");
  run(std::type_identity<gannet::models::T5>(), "t5_gated");
}
TEST(GenerateOnRanks, EachHasPromptsOfItsOwn) {
  std::vector<std::pair<int, int>> runs = {{0, 2}, {3, 2}, {3, 3}};  // stage, ranks
  if (std::getenv("GANNET_TEST_FULL")) runs.insert(runs.end(), {{0, 4}, {1, 2}, {2, 2}, {3, 1}, {3, 4}});
  for (const auto& [stage, count] : runs)
    ranks::expect_all_succeed(run_ranks("generates", count, {.environment = {{"STAGE", std::to_string(stage)}}}));
}

// A mistake of one rank, before any has begun, is an error on all, which go on together; what fails in the middle, and is caught
// there, is an error that names the rank on those that wait for it.
struct FailingImpl : gannet::models::Gpt2Impl {
  using Gpt2Impl::Gpt2Impl;
  at::Tensor next_logits(const gannet::GenerationInput& input, gannet::KvCache& cache) {
    if (fails_in >= 0 && fails_in-- == 0) throw std::runtime_error("no such adapter");
    return Gpt2Impl::next_logits(input, cache);
  }
  int64_t fails_in = -1;
};
template <class Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}
RANK_BODY(fails_on_one) {
  auto world = gannet::init_distributed({.timeout_seconds = 120});
  gannet::models::Gpt2Config config;
  config.vocab_size = 64, config.n_positions = 32, config.n_embd = 16, config.n_layer = 2, config.n_head = 2;
  auto model = std::make_shared<FailingImpl>(config);
  auto engine = gannet::initialize(model, {.config = config_of(3)}).engine;
  const bool is_one = world->rank() == 1;
  const auto holds = [](const std::string& text, const std::string& part) { expect(text.find(part) != std::string::npos, text); };
  for (const gannet::TokenLists& wrong : {gannet::TokenLists{{}}, gannet::TokenLists{{3, 64}}}) {
    const std::string found = error_of([&] { gannet::generate(engine, is_one ? wrong : gannet::TokenLists{{1, 2, 3}}); });
    holds(found, is_one ? "generate: prompt 0 " : "rank 1 was refused, and all ranks with it: generate: prompt 0 ");
    expect(gannet::generate(engine, {{1, 2}}, {.max_new_tokens = 3}).at(0).size() == 3, "they generate after it");
  }
  if (is_one) model->fails_in = 2;
  const auto began = std::chrono::steady_clock::now();
  const std::string found = error_of([&] { gannet::generate(engine, {{1, 2, 3}}, {.max_new_tokens = 8}); });
  holds(found, is_one ? "no such adapter" : "rank 1 has left generate() by an error: no such adapter");
  if (is_one)
    std::this_thread::sleep_for(std::chrono::seconds(25));  // the program has caught it
  else
    expect(std::chrono::steady_clock::now() - began < std::chrono::seconds(22), "the others wait for long");
}
TEST(GenerateOnRanks, WhatFailsOnOneRankIsAnErrorThatNamesItOnAll) { ranks::expect_all_succeed(run_ranks("fails_on_one", 2)); }

}  // namespace
