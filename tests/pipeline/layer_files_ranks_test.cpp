// The files of a pipeline's layers, and its weights by name: saved at one number of stages, loaded at another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "pipeline/run.h"
#include "plugin/support.h"

namespace {

using namespace gannet::test;
using ranks::expect;
using ranks::expect_all_succeed;
using ranks::run_ranks;
using ranks::same;
namespace fs = std::filesystem;

gannet::NamedTensors state_of(PipeRun& run) { return run.engine->module_state_dict(); }

void expect_equal(const gannet::NamedTensors& one, const gannet::NamedTensors& other, const std::string& what) {
  same(one.size(), other.size(), what + ": number of tensors");
  for (size_t i = 0; i < one.size(); ++i)
    expect(one[i].first == other[i].first && one[i].second.equal(other[i].second), what + ": " + one[i].first);
}

std::string layer_file(const std::string& folder, int number) {
  return folder + "/layer_0" + std::to_string(number) + "-model_states.safetensors";
}

// The names of all tensors in a folder's files, and the sum of all values.
std::pair<std::set<std::string>, double> contents_of(const std::string& folder) {
  std::set<std::string> names;
  double sum = 0;
  for (const auto& entry : fs::directory_iterator(folder))
    for (const auto& [name, tensor] : gannet::load_safetensors(entry.path().string()))
      if (names.insert(name).second) sum += tensor.to(torch::kDouble).abs().sum().item<double>();
  return {names, sum};
}

PipeRun::How tied() { return {.net = {.is_tied = variable("TIED") == "1"}}; }

RANK_BODY(saves_layers) {
  const std::string folder = variable("FOLDER");
  PipeRun run(pipe_config(variable("ZERO"), 0, variable("DTYPE")), tied());
  run.train(0, 2);
  const gannet::NamedTensors before = state_of(run);
  run.engine->save_state_dict(folder + "/layers");
  const bool is_first = gannet::init_distributed()->rank() == 0;
  if (is_first) {
    for (int layer = 0; layer < 7; ++layer) expect(fs::exists(layer_file(folder + "/layers", layer)), "a file for each layer");
    same(run.engine->ckpt_layer_path("x", 1), std::string("x/layer_01-model_states.safetensors"), "the path");
    const auto norm = gannet::load_safetensors(layer_file(folder + "/layers", 5));
    same(norm.size(), size_t{2}, "the tensors of a layer");
    same(norm.count("norm.weight"), size_t{1}, "names in the whole model");
    same(norm.at("norm.weight").numel(), int64_t{16}, "whole values");
    expect(norm.at("norm.weight").scalar_type() == (variable("DTYPE") == "bf16" ? torch::kBFloat16 : torch::kFloat), "the dtype");
  }
  run.train(2, 1);
  expect(!state_of(run)[0].second.equal(before[0].second), "it trains");
  run.engine->load_state_dir(folder + "/layers");
  expect_equal(state_of(run), before, "loaded again");
  run.train(3, 1);
  run.engine->load_module_state_dict(before);
  expect_equal(state_of(run), before, "loaded by name");
  run.engine->save_fp32_model(folder, "whole.safetensors");
}

// The weights of the files are the model's. A master that is the file's value when it is rounded stays as it is.
RANK_BODY(loads_layers) {
  const std::string folder = variable("FOLDER");
  PipeRun run(pipe_config(variable("ZERO"), 0, variable("DTYPE")), tied());
  run.engine->load_state_dir(folder + "/layers");
  const auto whole = gannet::load_safetensors(folder + "/whole.safetensors");
  for (const auto& [name, tensor] : run.engine->fp32_parameters())
    expect(variable("DTYPE") == "bf16" ? tensor.to(torch::kBFloat16).equal(whole.at(name).to(torch::kBFloat16))
                                       : tensor.equal(whole.at(name)),
           "the master of " + name);
  run.engine->save_state_dict(folder + "/again");
  run.train(0, 1);
}

class LayerFiles : public testing::TestWithParam<std::tuple<const char*, const char*, const char*>> {};

TEST_P(LayerFiles, LoadAtAnyNumberOfStages) {
  const auto [zero, dtype, is_tied] = GetParam();
  const TemporaryFolder folder;
  const auto with = [&](const char* stages) {
    return ranks::Options{
        .environment = {{"PIPE", stages}, {"FOLDER", folder.string()}, {"ZERO", zero}, {"DTYPE", dtype}, {"TIED", is_tied}}};
  };
  expect_all_succeed(run_ranks("saves_layers", 4, with("2")));
  const auto saved = contents_of(folder.string() + "/layers");
  EXPECT_EQ(saved.first.size(), std::string(is_tied) == "1" ? 27u : 29u);
  for (const auto& [stages, count] : {std::pair("1", 1), std::pair("2", 2), std::pair("3", 3)}) {
    fs::remove_all(folder.string() + "/again");
    expect_all_succeed(run_ranks("loads_layers", count, with(stages)));
    EXPECT_EQ(contents_of(folder.string() + "/again"), saved) << stages << " stages";
  }
}

INSTANTIATE_TEST_SUITE_P(, LayerFiles,
                         testing::Values(std::tuple("0", "fp32", "0"), std::tuple("1", "bf16", "1"), std::tuple("3", "fp32", "1"),
                                         std::tuple("3", "bf16", "0")),
                         [](const auto& info) {
                           return std::string("Zero") + std::get<0>(info.param) + std::get<1>(info.param) +
                                  (std::string(std::get<2>(info.param)) == "1" ? "Tied" : "");
                         });

// A stage with two chunks of layers, which are not next to one another.
TEST(LayerFilesOfChunks, HaveTheNumbersOfTheWholeModel) {
  const TemporaryFolder folder;
  std::map<std::string, std::string> environment = {{"PIPE", "2"}, {"FOLDER", folder.string()}, {"ZERO", "1"}, {"DTYPE", "fp32"}};
  environment["SCHEDULE"] = "interleaved";
  expect_all_succeed(run_ranks("saves_layers", 2, {.environment = environment}));
  environment["SCHEDULE"] = "";
  environment["PIPE"] = "1";
  expect_all_succeed(run_ranks("loads_layers", 1, {.environment = environment}));
  EXPECT_EQ(contents_of(folder.string() + "/again"), contents_of(folder.string() + "/layers"));
}

RANK_BODY(refuses_layers) {
  const std::string folder = variable("FOLDER") + "/layers";
  PipeRun run(pipe_config("1"), {.net = {.is_tied = true}});
  const auto world = gannet::init_distributed();
  const auto on_first = [&](const std::function<void()>& change) {
    if (world->rank() == 0) change();
    world->barrier();
  };
  const auto refused = [&](const std::string& text) {
    const gannet::NamedTensors before = state_of(run);
    contains(message_of([&] { run.engine->load_state_dir(folder); }), text);
    expect_equal(state_of(run), before, "nothing is changed");
    run.engine->save_state_dict(folder);
  };
  run.train(0, 1);
  contains(message_of([&] { run.engine->ckpt_layer_path("x", 9); }), "there is no layer 9");
  contains(message_of([&] { run.engine->load_state_dir(folder); }), "there is no file " + layer_file(folder, 0));
  run.engine->save_state_dict(folder);
  on_first([&] { fs::copy(layer_file(folder, 5), folder + "/old"); });
  run.train(1, 1);
  run.engine->save_state_dict(folder);
  on_first([&] { fs::rename(folder + "/old", layer_file(folder, 5)); });
  refused("was saved at step 1, and the layers before it at step 2");
  on_first([&] { fs::remove(layer_file(folder, 6)); });
  refused("there is no file " + layer_file(folder, 6));
  on_first([&] { fs::resize_file(layer_file(folder, 2), 100); });
  refused("layer_02-model_states.safetensors");
  on_first([&] { fs::copy(layer_file(folder, 1), layer_file(folder, 2), fs::copy_options::overwrite_existing); });
  refused("layer_02-model_states.safetensors does not have 'h.1.");
  on_first([&] {
    std::map<std::string, std::string> metadata;
    auto tensors = gannet::load_safetensors(layer_file(folder, 6), &metadata);
    tensors.at("words.weight").add_(1);
    gannet::save_safetensors(layer_file(folder, 6), {tensors.begin(), tensors.end()}, metadata);
  });
  refused("'words.weight' has other values for layer 6 than for layer 0");
  on_first([&] {
    std::map<std::string, std::string> metadata;
    auto tensors = gannet::load_safetensors(layer_file(folder, 5), &metadata);
    tensors.at("norm.bias") = torch::zeros({3});
    gannet::save_safetensors(layer_file(folder, 5), {tensors.begin(), tensors.end()}, metadata);
  });
  refused("'norm.bias' is [3] there, and [16] here");
  on_first([&] {
    auto tensors = gannet::load_safetensors(layer_file(folder, 5));
    gannet::save_safetensors(layer_file(folder, 5), {tensors.begin(), tensors.end()}, {{"layers", "9"}});
  });
  refused("the model had 9 layers, and this one has 7");
  gannet::NamedTensors state = state_of(run);
  state.emplace_back("h.9.weight", torch::zeros({1}));
  contains(message_of([&] { run.engine->load_module_state_dict(state); }), "was given 'h.9.weight'");
  run.engine->load_module_state_dict(state, /*strict=*/false);
  state.erase(state.begin());
  state.pop_back();
  contains(message_of([&] { run.engine->load_module_state_dict(state); }), "load_module_state_dict() was not given '");
  run.engine->load_module_state_dict({}, /*strict=*/false);
  on_first([&] { std::ofstream(folder + "/file") << "x"; });
  contains(message_of([&] { run.engine->save_state_dict(folder + "/file"); }), folder + "/file");
  run.train(2, 1);
}
TEST(LayerFilesFaults, AreNamedOnEveryRankAndChangeNothing) {
  const TemporaryFolder folder;
  expect_all_succeed(run_ranks("refuses_layers", 2, {.environment = {{"PIPE", "2"}, {"FOLDER", folder.string()}}}));
}

}  // namespace
