// from_pretrained and from_config on one rank: files, names and messages.
#include <gannet/gannet.h>
#include <gannet/models/gpt2.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>

#include "models/fixture.h"

namespace {

namespace fs = std::filesystem;
using gannet::models::Gpt2;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Folder : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/gannet-pretrained-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    path = name;
    fs::copy(fixture::folder("gpt2") + "/config.json", path + "/config.json");
    tensors = gannet::load_safetensors(fixture::folder("gpt2") + "/model.safetensors");
  }
  void TearDown() override { fs::remove_all(path); }
  void save() { gannet::save_safetensors(path + "/model.safetensors", {tensors.begin(), tensors.end()}); }
  void set_config(const gannet::Dict& more) {
    gannet::ModelConfig json = gannet::ModelConfig::read(path);
    json.overwrite(more);
    std::ofstream(path + "/config.json") << gannet::Value(json.values()).to_json();
  }
  std::string error_of(const gannet::PretrainedOptions& options = {}) {
    try {
      gannet::from_pretrained<Gpt2>(path, options);
    } catch (const gannet::Error& error) {
      code = error.code();
      return error.what();
    }
    return "nothing was thrown";
  }
  std::string path;
  std::map<std::string, at::Tensor> tensors;
  gannet::ErrorCode code = gannet::ErrorCode::kInternal;
};

std::map<std::string, at::Tensor> parameters_of(const torch::nn::Module& module) {
  std::map<std::string, at::Tensor> all;
  for (const auto& entry : module.named_parameters()) all.emplace(entry.key(), entry.value().detach());
  return all;
}

void expect_weights(const torch::nn::Module& module, const std::map<std::string, at::Tensor>& expected) {
  const auto found = parameters_of(module);
  EXPECT_EQ(found.size(), expected.size());
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(at::equal(found.at(name), tensor)) << name;
}

TEST_F(Folder, OneFileShardsAndBinFilesGiveTheSameWeights) {
  for (const char* name : {"gpt2", "gpt2_shards", "gpt2_bin"}) {
    SCOPED_TRACE(name);
    gannet::PretrainedReceipt receipt;
    expect_weights(*gannet::from_pretrained<Gpt2>(fixture::folder(name), {}, &receipt), tensors);
    EXPECT_EQ(receipt.loaded, 28);
    EXPECT_THAT(receipt.missing, IsEmpty());
    EXPECT_THAT(receipt.unexpected, IsEmpty());
  }
}

TEST_F(Folder, MissingAndUnexpectedNamesAreToldAndErrorsWhereStrict) {
  tensors.erase("transformer.ln_f.bias");
  tensors["transformer.extra"] = torch::ones({2});
  save();
  std::vector<std::string> lines;
  gannet::set_log_sink([&](gannet::LogLevel, const std::string& line) { lines.push_back(line); });
  gannet::PretrainedReceipt receipt;
  const auto model = gannet::from_pretrained<Gpt2>(path, {}, &receipt);
  gannet::set_log_sink({});
  EXPECT_THAT(receipt.missing, ElementsAre("transformer.ln_f.bias"));
  EXPECT_THAT(receipt.unexpected, ElementsAre("transformer.extra"));
  EXPECT_EQ(receipt.loaded, 27);
  EXPECT_THAT(lines, ElementsAre(HasSubstr("27 tensors"), HasSubstr("transformer.ln_f.bias"), HasSubstr("transformer.extra")));
  EXPECT_THAT(error_of({.strict = true}), HasSubstr("missing transformer.ln_f.bias"));
  EXPECT_EQ(code, gannet::ErrorCode::kMismatch);
}

TEST_F(Folder, MoreThanATenthOfTheNamesMissingIsAnErrorUnlessItIsMeant) {
  for (const char* name : {"transformer.ln_f.bias", "transformer.ln_f.weight"}) tensors.erase(name);  // 2 of 28
  save();
  EXPECT_EQ(error_of(), "nothing was thrown");
  tensors.erase("transformer.wpe.weight");  // 3 of 28
  tensors["other.weight"] = torch::ones({2});
  save();
  EXPECT_THAT(error_of(), testing::AllOf(HasSubstr("3 of 28 names are not in the files, which have other.weight instead"),
                                         HasSubstr("transformer.wpe.weight"), HasSubstr("allow_missing = true")));
  EXPECT_EQ(code, gannet::ErrorCode::kMismatch);
  EXPECT_EQ(error_of({.allow_missing = true}), "nothing was thrown");
}

TEST_F(Folder, AQuantisedModelIsRefusedByItsConfig) {
  save();
  set_config({{"quantization_config", gannet::Dict{{"quant_method", "gptq"}, {"bits", 4}}}});
  EXPECT_THAT(error_of(), testing::AllOf(HasSubstr("quantization_config (gptq)"), HasSubstr("dequantise it")));
  EXPECT_EQ(code, gannet::ErrorCode::kUnsupported);
  EXPECT_EQ(error_of({.model_overwrite = {{"quantization_config", gannet::Value()}}}), "nothing was thrown");
}

TEST_F(Folder, APrefixThatWouldFitIsSaidAndBothSidesAreShown) {
  std::map<std::string, at::Tensor> wrapped;
  for (const auto& [name, tensor] : tensors) wrapped["module." + name] = tensor;
  std::swap(tensors, wrapped);
  save();
  EXPECT_THAT(error_of(), testing::AllOf(HasSubstr("the files have module.transformer."), HasSubstr("the model has transformer."),
                                         HasSubstr("--rename module.=")));
}

TEST_F(Folder, AnotherShapeIsAnErrorUnlessItIsMeant) {
  tensors["transformer.wpe.weight"] = torch::ones({32, 16});
  save();
  EXPECT_THAT(error_of(), HasSubstr("transformer.wpe.weight: [32, 16] there, [64, 16] here"));
  EXPECT_EQ(code, gannet::ErrorCode::kMismatch);
  gannet::PretrainedReceipt receipt;
  const auto model = gannet::from_pretrained<Gpt2>(path, {.ignore_mismatched_sizes = true}, &receipt);
  EXPECT_THAT(receipt.mismatched, ElementsAre("transformer.wpe.weight: [32, 16] there, [64, 16] here"));
  EXPECT_EQ(receipt.loaded, 27);
}

TEST_F(Folder, TheFilesOfTheModelWithoutItsHeadAndOfOlderVersionsFit) {
  std::map<std::string, at::Tensor> older;
  for (const auto& [name, tensor] : tensors) older[name.substr(std::string("transformer.").size())] = tensor;
  older["h.0.attn.bias"] = torch::ones({1, 1, 64, 64});
  std::swap(older, tensors);
  save();
  gannet::PretrainedReceipt receipt;
  expect_weights(*gannet::from_pretrained<Gpt2>(path, {}, &receipt), older);
  EXPECT_THAT(receipt.unexpected, IsEmpty());
  EXPECT_THAT(receipt.missing, IsEmpty());
}

TEST_F(Folder, ATiedTensorIsFoundUnderEitherNameAndMayNotHaveTwoValues) {
  tensors["lm_head.weight"] = tensors["transformer.wte.weight"].clone();
  save();
  gannet::from_pretrained<Gpt2>(path, {.strict = true});
  const at::Tensor tied = tensors["transformer.wte.weight"];
  tensors.erase("transformer.wte.weight");
  save();
  EXPECT_TRUE(
      at::equal(parameters_of(*gannet::from_pretrained<Gpt2>(path, {.strict = true})).at("transformer.wte.weight"), tied));
  tensors["transformer.wte.weight"] = tied + 1;
  save();
  EXPECT_THAT(error_of(), HasSubstr("have different values"));
}

TEST_F(Folder, TheDtypeIsChosenAndTheDefaultOneStays) {
  save();
  const auto narrow = gannet::from_pretrained<Gpt2>(path, {.dtype = "bfloat16"});
  for (const auto& [name, tensor] : parameters_of(*narrow)) {
    EXPECT_EQ(tensor.scalar_type(), at::kBFloat16) << name;
    EXPECT_TRUE(at::equal(tensor, tensors.at(name).to(at::kBFloat16))) << name;
  }
  EXPECT_EQ(torch::get_default_dtype(), caffe2::TypeMeta::Make<float>());
  set_config({{"dtype", "float16"}});
  EXPECT_EQ(gannet::from_pretrained<Gpt2>(path, {.dtype = "auto"})->parameters()[0].scalar_type(), at::kHalf);
  EXPECT_THAT(error_of({.dtype = "int8"}), HasSubstr("cannot be 'int8'"));
}

TEST_F(Folder, ValuesOfTheConfigAreReplacedInCode) {
  const auto model = gannet::from_config<Gpt2>(path, {.model_overwrite = {{"n_layer", 1}, {"resid_pdrop", 0.5}}});
  EXPECT_EQ(model->config().n_layer, 1);
  EXPECT_EQ(model->config().resid_pdrop, 0.5);
  EXPECT_EQ(model->config().n_embd, 16);
}

TEST_F(Folder, ANameThatTheModelDoesNotReadIsNoOverwrite) {
  const auto error = [](const gannet::Dict& overwrite) -> std::string {
    try {
      gannet::from_config<gannet::models::Gpt2>(fixture::folder("gpt2"), {.model_overwrite = overwrite});
      gannet::from_pretrained<gannet::models::Gpt2>(fixture::folder("gpt2"), {.model_overwrite = overwrite});
    } catch (const gannet::Error& error) {
      return error.message();
    }
    return "";
  };
  EXPECT_EQ(error({{"n_layers", 1}}), "model_overwrite has 'n_layers', which the model does not read; did you mean 'n_layer'?");
  // Settings of the file or of the load that do not affect the sizes.
  EXPECT_EQ(error({{"resid_pdrop", 0.0}, {"use_cache", false}, {"torch_dtype", "float32"}}), "");
}

TEST_F(Folder, WhatIsWrongWithAFolderIsSaid) {
  EXPECT_THAT(error_of(), HasSubstr("holds no weights"));
  EXPECT_EQ(code, gannet::ErrorCode::kArgument);
  set_config({{"n_embd", "wide"}});
  save();
  EXPECT_THAT(error_of(), HasSubstr("n_embd is \"wide\", a string; it must be an integer"));
  EXPECT_EQ(code, gannet::ErrorCode::kConfig);
  set_config({{"n_embd", 18}});
  EXPECT_THAT(error_of(), HasSubstr("n_embd 18 is not a multiple"));
  set_config({{"model_type", "mamba"}});
  EXPECT_THAT(error_of(), HasSubstr("model_type is 'mamba', and this model reads 'gpt2'"));
  EXPECT_EQ(code, gannet::ErrorCode::kUnsupported);
  fs::remove(path + "/config.json");
  EXPECT_THAT(error_of(), HasSubstr("there is no " + path + "/config.json"));
  EXPECT_EQ(code, gannet::ErrorCode::kNotFound);
  std::ofstream(path + "/adapter_config.json") << "{}";
  EXPECT_THAT(error_of(), testing::AllOf(HasSubstr("a PEFT adapter"), HasSubstr("merge it first")));
}

TEST_F(Folder, AMissingOrCutShardIsNamed) {
  fs::copy(fixture::folder("gpt2_shards"), path, fs::copy_options::overwrite_existing | fs::copy_options::recursive);
  const std::string shard = path + "/model-00002-of-00003.safetensors";
  fs::resize_file(shard, fs::file_size(shard) - 7);
  EXPECT_THAT(error_of(), HasSubstr("model-00002-of-00003.safetensors"));
  EXPECT_EQ(code, gannet::ErrorCode::kCorrupt);
  fs::remove(shard);
  EXPECT_THAT(error_of(), HasSubstr("model-00002-of-00003.safetensors"));
  EXPECT_EQ(code, gannet::ErrorCode::kNotFound);
}

TEST_F(Folder, WeightsOfAnotherModelAreRefused) {
  tensors = {{"conv.weight", torch::ones({3})}};
  save();
  EXPECT_THAT(error_of(), HasSubstr("none of their names is the model's"));
}

TEST_F(Folder, IntegersAreNotTakenForWeights) {
  tensors["transformer.wpe.weight"] = tensors["transformer.wpe.weight"].to(at::kChar);
  save();
  EXPECT_THAT(error_of(), HasSubstr("transformer.wpe.weight (Char there, Float here)"));
  EXPECT_EQ(code, gannet::ErrorCode::kMismatch);
  // Another floating type is converted.
  tensors["transformer.wpe.weight"] = torch::ones({64, 16}, at::kBFloat16);
  save();
  EXPECT_EQ(parameters_of(*gannet::from_pretrained<Gpt2>(path)).at("transformer.wpe.weight").sum().item<double>(), 64 * 16);
}

TEST_F(Folder, AFileThatWasCutIsCalledWhatItWas) {
  for (const uintmax_t bytes : {0, 5, 12}) {
    save();
    fs::resize_file(path + "/model.safetensors", bytes);
    const std::string told = error_of();
    EXPECT_THAT(told, HasSubstr("model.safetensors"));
    EXPECT_THAT(told, HasSubstr(bytes == 0 ? "is empty, of 0 bytes" : "damaged or not in the safetensors format"));
    EXPECT_EQ(code, gannet::ErrorCode::kCorrupt);
  }
}

// The group's first rank reports; the variable RANK does not matter in a world of one.
TEST_F(Folder, TheFirstRankOfTheGroupTellsWhatWasLoaded) {
  save();
  std::vector<std::string> lines;
  const auto world = gannet::init_distributed({.rank = 0, .world_size = 1});
  ::setenv("RANK", "3", 1);
  gannet::set_log_sink([&](gannet::LogLevel, const std::string& line) { lines.push_back(line); });
  gannet::from_pretrained<Gpt2>(path);
  gannet::set_log_sink({});
  ::unsetenv("RANK");
  EXPECT_THAT(lines, ElementsAre(HasSubstr("28 tensors")));
}

}  // namespace
