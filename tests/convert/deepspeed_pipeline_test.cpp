// Pipelines that DeepSpeed 0.19.6 saved (make_pipeline_fixtures.py), against the tensors that it had.
#include <ATen/ops/empty.h>

#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/checkpoint.h"
#include "convert/deepspeed.h"
#include "convert/deepspeed_export.h"
#include "files/support.h"

namespace gannet::convert {
namespace {

using namespace files;

using nlohmann::json;
using testing::HasSubstr;

std::string fixture_of(const std::string& name) { return std::string(GANNET_SOURCE_DIR) + "/tests/convert/deepspeed/" + name; }

// A TiedLayerSpec's key is in the files of ZeRO stages alone: elsewhere its layer's number names it.
std::vector<std::pair<std::string, std::string>> renames_of(const std::string& name) {
  const bool has_key = name.find("s1") != name.npos || name.find("bf16") != name.npos;
  std::vector<std::pair<std::string, std::string>> renames = {{"1.", "h.0."}, {"3.", "h.1."}, {"5.", "h.2."}};
  renames.emplace_back(has_key ? "tied_modules.embed." : "0.", "words.");
  if (name == "pipe-s0-block-r2")
    renames.emplace_back("9.", "head.");
  else
    renames.emplace_back("7.", "h.3.");
  if (name == "pipe-s1-fp32-r2") renames.emplace_back("9.", "scale.");
  return renames;
}

std::string bytes_of(const checkpoint::Opened& opened, const std::string& name) {
  const checkpoint::TensorInfo* info = opened.find(name);
  if (!info) return "there is no " + name;
  at::Tensor tensor = at::empty({info->numel()}, info->dtype);
  opened.read({{name, 0, tensor}});
  std::string text;
  for (size_t i = 0; i < tensor.nbytes(); ++i) {
    char two[3];
    std::snprintf(two, sizeof(two), "%02x", static_cast<const unsigned char*>(tensor.const_data_ptr())[i]);
    text += two;
  }
  return text;
}

class DeepSpeedPipeline : public FolderTest {
 protected:
  std::string copy(const std::string& name) {
    fs::remove_all(root_ / name);
    fs::copy(fixture_of(name), root_ / name, fs::copy_options::recursive);
    return file(name);
  }
  std::string refused(ErrorCode code, const std::string& from, const DeepSpeedOptions& options = {}) {
    const std::string text = error_of(code, [&] { import_deepspeed(from, file("out"), options); });
    EXPECT_FALSE(fs::exists(root_ / "out")) << "something was left behind";
    return text;
  }
};

class EveryPipeline : public DeepSpeedPipeline, public testing::WithParamInterface<const char*> {};

TEST_P(EveryPipeline, IsOneCheckpointOfTheWholeModel) {
  const std::string from = fixture_of(GetParam());
  const json wanted = json::parse(read_text(from + "/expected.json"));
  const std::string receipt = import_deepspeed(from, file("out"), {.renames = renames_of(GetParam())}).to_string();
  EXPECT_THAT(receipt, HasSubstr("taken: a pipeline of 2 stages"));
  const checkpoint::Opened opened = checkpoint::open(file("out"), {});
  EXPECT_TRUE(opened.verify().empty());
  std::set<std::string> names, found;
  for (const auto& [name, values] : wanted["tensors"].items())
    for (const auto& [kind, digits] : values.items()) {
      names.insert(kind == "master" ? "parameter/" + name : "state/" + kind + "/" + name);
      EXPECT_EQ(bytes_of(opened, *names.insert(kind == "master" ? "parameter/" + name : "state/" + kind + "/" + name).first),
                digits)
          << kind << " of " << name;
    }
  if (std::string(GetParam()) == "pipe-s1-fp32-r2") names.insert("buffer/0/scale.shift");
  for (const auto& tensor : opened.tensors()) found.insert(tensor.name);
  EXPECT_EQ(found, names);
  EXPECT_EQ(opened.find("parameter/words.weight")->shape, (std::vector<int64_t>{11, 6}));
  EXPECT_EQ(opened.document().find("global_steps")->as_int(), 4);
  EXPECT_EQ(opened.document().find("client_state")->to_json(), R"({"epoch": 2})");
}

TEST_P(EveryPipeline, ExportsItsWeights) {
  const json wanted = json::parse(read_text(fixture_of(GetParam()) + "/expected.json"));
  std::vector<std::string> notes;
  const checkpoint::ExportSource source = deepspeed_weights(fixture_of(GetParam()), "", /*exclude_frozen=*/false, notes);
  EXPECT_EQ(source.tensors.size(), wanted["tensors"].size() + (std::string(GetParam()) == "pipe-s1-fp32-r2"));
}

TEST_P(EveryPipeline, HasItsWeightsWithoutStates) {
  import_deepspeed(fixture_of(GetParam()), file("out"), {.weights_only = true});
  const checkpoint::Opened opened = checkpoint::open(file("out"), {});
  EXPECT_GE(opened.tensors().size(), 9u);
  for (const auto& tensor : opened.tensors()) EXPECT_FALSE(tensor.name.starts_with("state/")) << tensor.name;
}

INSTANTIATE_TEST_SUITE_P(, EveryPipeline,
                         testing::Values("pipe-s0-fp32-r2", "pipe-s0-block-r2", "pipe-s0-fp16-r2", "pipe-s0-bf16-r2",
                                         "pipe-s1-fp32-r2", "pipe-s1-fp32-r4"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST_F(DeepSpeedPipeline, SaysWhatIsTied) {
  const std::string zero = import_deepspeed(fixture_of("pipe-s1-fp32-r2"), file("out"), {}).to_string();
  EXPECT_THAT(zero, testing::AllOf(HasSubstr("layer_00-model_states.pt: they are those of tied_modules.embed"),
                                   HasSubstr("9 trained parameters, 234 elements as fp32, 1 frozen, 1 buffer")));
  const std::string block = import_deepspeed(fixture_of("pipe-s0-block-r2"), file("out2"), {}).to_string();
  EXPECT_THAT(block, HasSubstr("7.bias: another name of 1.bias, which is kept once"));
}

TEST_F(DeepSpeedPipeline, TakesTheFileNamesOfATopologyWithAnAxisForTheModel) {
  const std::string from = copy("pipe-s1-fp32-r4");
  for (const std::string number : {"00", "01", "03", "05", "07"})
    fs::rename(from + "/step4/layer_" + number + "-model_states.pt",
               from + "/step4/layer_" + number + "-model_00-model_states.pt");
  import_deepspeed(from, file("out"), {});
  EXPECT_EQ(checkpoint::open(file("out"), {}).tensors().size(), 27u);
  fs::copy(from + "/step4/layer_03-model_00-model_states.pt", from + "/step4/layer_03-model_states.pt");
  fs::remove_all(root_ / "out");
  EXPECT_THAT(refused(ErrorCode::kMismatch, from), HasSubstr("two files of layer 3"));
  fs::rename(from + "/step4/layer_03-model_states.pt", from + "/step4/layer_03-model_01-model_states.pt");
  EXPECT_THAT(refused(ErrorCode::kUnsupported, from), HasSubstr("tensor parallelism (layer_03-model_01-model_states.pt)"));
}

TEST_F(DeepSpeedPipeline, NamesTheFileThatIsMissing) {
  const struct {
    const char *fixture, *file, *text;
  } kCases[] = {
      {"pipe-s1-fp32-r4", "mp_rank_01_model_states.pt", "there is no file of the model (mp_rank_01_model_states.pt)"},
      {"pipe-s1-fp32-r4", "mp_rank_00_model_states.pt", "there is no file of the model (mp_rank_00_model_states.pt"},
      {"pipe-s0-fp32-r2", "mp_rank_01_model_states.pt", "there is no file of the model (mp_rank_01_model_states.pt)"},
      {"pipe-s1-fp32-r4", "zero_pp_rank_1_mp_rank_01_optim_states.pt", "those of rank 1 are missing"},
      {"pipe-s1-fp32-r4", "layer_03-model_states.pt", "the file of layer 3 is missing, which has the parameter 3.weight"},
      {"pipe-s0-bf16-r2", "layer_00-model_states.pt", "no file of a layer has the parameter tied_modules.embed.weight"},
  };
  for (const auto& [name, file, text] : kCases) {
    const std::string from = copy(name);
    fs::remove(from + "/step4/" + file);
    EXPECT_THAT(refused(ErrorCode::kNotFound, from), HasSubstr(text)) << file;
  }
  const std::string optimizers = copy("pipe-s1-fp32-r4");
  for (const char* rank : {"0", "1"}) fs::remove(optimizers + "/step4/zero_pp_rank_" + rank + "_mp_rank_01_optim_states.pt");
  EXPECT_THAT(refused(ErrorCode::kNotFound, optimizers),
              HasSubstr("(zero_pp_rank_0_mp_rank_01_optim_states.pt ...) are missing"));
  const std::string layers = copy("pipe-s1-fp32-r4");
  for (const auto& entry : fs::directory_iterator(layers + "/step4"))
    if (entry.path().filename().string().starts_with("layer_")) fs::remove(entry.path());
  EXPECT_THAT(refused(ErrorCode::kUnsupported, layers), HasSubstr("tensor parallelism (mp_rank_01_model_states.pt)"));
}

TEST_F(DeepSpeedPipeline, RefusesLayersThatAreNotTheOptimizers) {
  const std::string from = copy("pipe-s0-fp32-r2");
  fs::remove(from + "/step4/layer_03-model_states.pt");
  EXPECT_THAT(refused(ErrorCode::kMismatch, from),
              HasSubstr("the parameters of the 2 stages' optimizers are not those of the 4 files"));
  const std::string sharded = copy("pipe-s1-fp32-r4");
  fs::copy(sharded + "/step4/layer_00-model_states.pt", sharded + "/step4/layer_03-model_states.pt",
           fs::copy_options::overwrite_existing);
  EXPECT_THAT(refused(ErrorCode::kMismatch, sharded),
              HasSubstr("the optimizer has the parameter 3.weight[6, 6], and layer_03-model_states.pt has it as [11, 6]"));
  const std::string more = copy("pipe-s1-fp32-r4");
  fs::copy(more + "/step4/mp_rank_01_model_states.pt", more + "/step4/mp_rank_02_model_states.pt");
  EXPECT_THAT(refused(ErrorCode::kNotFound, more), HasSubstr("optimizer files"));
}

}  // namespace
}  // namespace gannet::convert
