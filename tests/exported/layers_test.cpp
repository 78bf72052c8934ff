// The layers of exported models compute what the whole graph computes, bit for bit, also where they are recomputed; and they are
// cut where the analysis of the graph says.
#include <ATen/Parallel.h>
#include <gannet/checkpointing.h>
#include <gannet/gannet.h>
#include <gannet/pipe.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "exported/archive.h"

namespace {

using archive::are_equal;
using archive::below;
using archive::Tensors;
using gannet::Dict;
using gannet::ExportedModule;
using gannet::Layer;
using gannet::NamedBatch;
using gannet::Wire;
using testing::ElementsAre;

std::vector<std::string> names_of(const std::vector<Layer>& layers) {
  std::vector<std::string> names;
  for (const Layer& one : layers) names.push_back(one.name());
  return names;
}

// Runs the layers in `regions` regions of activation checkpointing, 0: none.
at::Tensor loss_in(const ExportedModule& model, const std::vector<Layer>& layers, const NamedBatch& batch, size_t regions) {
  const gannet::pipe::MicroBatch micro_batch = model.micro_batch(batch);
  Wire wire = micro_batch.inputs;
  const size_t parts = std::min(regions, layers.size());
  for (size_t part = 0; part < parts; ++part) {
    const std::vector<Layer> group(layers.begin() + static_cast<std::ptrdiff_t>(part * layers.size() / parts),
                                   layers.begin() + static_cast<std::ptrdiff_t>((part + 1) * layers.size() / parts));
    wire = gannet::checkpointing::checkpoint([group](const Wire& in) { return gannet::detail::run_layers(group, in); }, wire);
  }
  if (regions == 0) wire = gannet::detail::run_layers(layers, wire);
  wire.insert(wire.end(), micro_batch.labels.begin(), micro_batch.labels.end());
  return model.pipeline_loss(wire);
}

void expect_layers_as_eager(const std::string& folder, const Tensors& expected, int index, const std::string& graph,
                            size_t regions) {
  SCOPED_TRACE(std::to_string(index) + "." + graph + ", " + std::to_string(regions) + " regions");
  const Tensors wanted = below(expected, std::to_string(index) + "." + graph + ".");
  const auto model = gannet::from_pretrained<ExportedModule>(folder, {.dtype = graph.ends_with("bf16") ? "bfloat16" : "float32"});
  model->train(graph.starts_with("train"));
  torch::manual_seed(static_cast<uint64_t>(7 + index));
  const at::Tensor loss = loss_in(*model, model->layers(), NamedBatch(below(wanted, "batch.")), regions);
  EXPECT_TRUE(are_equal(loss.detach(), wanted.at("loss"))) << loss << wanted.at("loss");
  loss.backward();
  const Tensors grads = below(wanted, "grad."), buffers = below(wanted, "buffer.");
  size_t compared = 0;
  for (const auto& entry : model->named_parameters()) {
    if (!entry.value().requires_grad() || !grads.contains(entry.key())) continue;
    EXPECT_TRUE(entry.value().grad().defined() && are_equal(entry.value().grad(), grads.at(entry.key()))) << entry.key();
    ++compared;
  }
  EXPECT_EQ(compared, grads.size());
  for (const auto& entry : model->named_buffers()) EXPECT_TRUE(are_equal(entry.value(), buffers.at(entry.key()))) << entry.key();
}

class ExportedLayers : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { at::set_num_threads(1); }
  void TearDown() override { at::set_num_threads(threads_); }
  int threads_ = at::get_num_threads();
};

TEST_P(ExportedLayers, ComputeWhatEagerPyTorchComputes) {
  const Tensors expected = gannet::load_safetensors(GetParam() + "/expected.safetensors");
  for (const char* graph : {"train.fp32", "eval.fp32", "train.bf16", "eval.bf16"})
    for (int index = 0; index < 3; ++index) expect_layers_as_eager(GetParam(), expected, index, graph, 0);
}

// With dropout: the recomputation draws the numbers of the forward.
TEST_P(ExportedLayers, RecomputedInRegionsGiveTheGradientsOfEagerPyTorch) {
  const Tensors expected = gannet::load_safetensors(GetParam() + "/expected.safetensors");
  for (const char* graph : {"train.fp32", "train.bf16"})
    for (const size_t regions : {1, 2, 4, 8}) expect_layers_as_eager(GetParam(), expected, 1, graph, regions);
}

INSTANTIATE_TEST_SUITE_P(, ExportedLayers, testing::ValuesIn(archive::all()), [](const auto& info) {
  return std::filesystem::path(info.param).filename().string() + "_" + std::to_string(info.index);
});

TEST(ExportedLayersNames, AreThoseOfTheModules) {
  const auto layers_of = [](const char* name) {
    return names_of(gannet::from_pretrained<ExportedModule>(archive::folder(name))->layers());
  };
  EXPECT_THAT(layers_of("gpt2"),
              ElementsAre("transformer.wte", "transformer.h.0", "transformer.h.1", "transformer.ln_f", "lm_head"));
  EXPECT_THAT(layers_of("residual"), ElementsAre("net.0", "net.1", "net.2", "net.5"));
  EXPECT_THAT(layers_of("odd"), ElementsAre("words", "head"));
}

Dict adamw_with(const Dict& more) {
  Dict config = {{"train_micro_batch_size_per_gpu", 2}, {"optimizer", Dict{{"type", "AdamW"}, {"params", Dict{{"lr", 1e-2}}}}}};
  for (const auto& [key, value] : more.entries()) config[key] = value;
  return config;
}

// Losses and parameters of four steps with dropout.
Tensors trained_with(const Dict& more) {
  const Dict config = adamw_with(more);
  const auto model = gannet::from_pretrained<ExportedModule>(archive::folder("gpt2"), {.config = config});
  auto engine = gannet::initialize(model, {.config = config}).engine;
  Tensors found;
  for (int step = 0; step < 4; ++step) {
    torch::manual_seed(static_cast<uint64_t>(step));
    const at::Tensor ids = torch::randint(1, 40, {2, 6 + step % 3}, at::kLong);
    const at::Tensor loss = engine->forward(NamedBatch{{"input_ids", ids}, {"labels", ids}});
    engine->backward(loss);
    engine->step();
    found["loss " + std::to_string(step)] = loss.detach().clone();
  }
  for (const auto& [name, values] : engine->fp32_parameters()) found[name] = values.clone();
  return found;
}

Dict with_regions(int64_t count) { return {{"activation_checkpointing", Dict{{"number_checkpoints", count}}}}; }

TEST(ExportedRecomputation, ByTheConfigChangesNoBit) {
  const Tensors plain = trained_with({});
  const Dict limit = {{"gannet", Dict{{"activation_checkpointing", Dict{{"memory_limit", "20KB"}}}}}};
  Dict sharded = with_regions(3);
  sharded["zero_optimization"] = Dict{{"stage", 3}, {"stage3_param_persistence_threshold", 0}};
  for (const Dict& more : {with_regions(1), with_regions(2), with_regions(4), with_regions(8), limit, sharded}) {
    const Tensors found = trained_with(more);
    ASSERT_EQ(found.size(), plain.size());
    for (const auto& [name, values] : plain) EXPECT_TRUE(at::equal(found.at(name), values)) << name;
  }
}

TEST(ExportedMicroBatch, HasWhatTheLayersNeedAndWhatTheLossNeeds) {
  const auto model = gannet::from_pretrained<ExportedModule>(archive::folder("gpt2"));
  const at::Tensor ids = torch::randint(1, 40, {4, 16}, at::kLong), labels = ids.clone();
  const gannet::pipe::MicroBatch made = model->micro_batch({{"input_ids", ids}, {"labels", labels}});
  ASSERT_EQ(made.inputs.size(), 1u);
  EXPECT_TRUE(made.inputs[0].is_same(ids));
  ASSERT_EQ(made.labels.size(), 1u);
  EXPECT_TRUE(made.labels[0].is_same(labels));
  EXPECT_THROW(model->micro_batch({{"input_ids", ids}}), gannet::Error);
  EXPECT_THROW(model->micro_batch({{"input_ids", ids}, {"labels", labels.narrow(0, 0, 2)}}), gannet::Error);
}

std::string refusal_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const gannet::Error& error) {
    return error.what();
  }
  return {};
}

TEST(ExportedPipeline, RefusesAModelWhoseParameterIsItsOwn) {
  const auto model = gannet::from_pretrained<ExportedModule>(archive::folder("odd"));
  EXPECT_THAT(refusal_of([&] { model->pipeline_layers(); }),
              testing::HasSubstr("'calls' is a parameter or buffer of the model itself"));
}

TEST(ExportedPipeline, RefusesAWireOfAnotherLength) {
  const auto model = gannet::from_pretrained<ExportedModule>(archive::folder("gpt2"));
  EXPECT_THAT(refusal_of([&] { model->layers()[1]({}); }),
              testing::HasSubstr("layer 'transformer.h.0' of the graph train.fp32 takes 2 tensors, and was given 0"));
}

}  // namespace
