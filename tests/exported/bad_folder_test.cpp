// A folder with something wrong in it is refused with the file, before any weight is read.
#include <gannet/gannet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "exported/archive.h"

namespace {

using archive::Copy;
using gannet::ErrorCode;
using gannet::ExportedModule;
using testing::AllOf;
using testing::HasSubstr;

class Folder : public testing::Test {
 protected:
  std::string error(const gannet::PretrainedOptions& options = {}) {
    try {
      gannet::from_pretrained<ExportedModule>(copy.path, options);
    } catch (const gannet::Error& error) {
      code = error.code();
      return error.what();
    }
    return "nothing was thrown";
  }
  Copy copy{"odd"};
  ErrorCode code = ErrorCode::kInternal;
};

TEST_F(Folder, ThatIsRightLoads) { EXPECT_EQ(error(), "nothing was thrown"); }

TEST_F(Folder, OfAnotherModelOrFormatIsRefused) {
  ASSERT_TRUE(copy.replace("config.json", "gannet_exported", "gpt2"));
  EXPECT_THAT(error(), AllOf(HasSubstr("model_type is 'gpt2'"), HasSubstr("'gannet_exported'")));
  EXPECT_EQ(code, ErrorCode::kUnsupported);
  ASSERT_TRUE(copy.replace("config.json", "\"gpt2\"", "\"gannet_exported\""));
  ASSERT_TRUE(copy.replace("config.json", "\"format\": 1", "\"format\": 3"));
  EXPECT_THAT(error(),
              AllOf(HasSubstr("config.json: format 3, and this Gannet reads format 1"), HasSubstr("export the model again")));
}

TEST_F(Folder, WithoutAFileIsRefusedByItsName) {
  for (const char* name : {"constants.safetensors", "graph.eval.bf16.json", "config.json"}) {
    archive::fs::remove(copy.path + "/" + name);
    EXPECT_THAT(error(), HasSubstr(name));
    EXPECT_EQ(code, ErrorCode::kNotFound);
    archive::fs::copy(archive::folder("odd") + "/" + name, copy.path);
  }
  archive::fs::remove(copy.path + "/model.safetensors");
  EXPECT_NE(error(), "nothing was thrown");
}

TEST_F(Folder, NamesGraphsOfItsOwnAlone) {
  ASSERT_TRUE(copy.replace("config.json", "\"train.fp32\"", "\"../../etc/passwd\""));
  EXPECT_THAT(error(), HasSubstr("a graph is one of train.fp32, eval.fp32, train.bf16 and eval.bf16"));
  EXPECT_EQ(code, ErrorCode::kCorrupt);
}

TEST_F(Folder, WhoseGraphIsThatOfAnotherNameIsRefused) {
  archive::fs::copy(copy.path + "/graph.eval.fp32.json", copy.path + "/graph.train.fp32.json",
                    archive::fs::copy_options::overwrite_existing);
  EXPECT_THAT(error(), HasSubstr("graph.train.fp32.json: it holds the graph eval.fp32"));
}

TEST_F(Folder, WithATruncatedGraphIsRefusedWithItsPlace) {
  const std::string path = copy.path + "/graph.train.fp32.json";
  archive::fs::resize_file(path, archive::fs::file_size(path) / 2);
  EXPECT_THAT(error(), AllOf(HasSubstr("graph.train.fp32.json:1:"), HasSubstr("the JSON text ends here and is not complete")));
  EXPECT_EQ(code, ErrorCode::kCorrupt);
}

TEST_F(Folder, WithAHugeGraphIsRefusedBeforeItIsRead) {
  archive::fs::resize_file(copy.path + "/graph.train.fp32.json", 300 << 20);  // sparse
  EXPECT_THAT(error(), HasSubstr("graph.train.fp32.json: larger than 256 MiB, which no graph is"));
  EXPECT_EQ(code, ErrorCode::kCorrupt);
}

TEST_F(Folder, WhoseTensorsAreNotThoseOfItsGraphIsRefused) {
  ASSERT_TRUE(copy.replace("graph.train.fp32.json", R"(["parameter","words.weight"])", R"(["parameter","words.wait"])"));
  EXPECT_THAT(error(), HasSubstr("the parameter 'words.wait' is not in config.json"));
  ASSERT_TRUE(copy.replace("graph.train.fp32.json", "words.wait", "words.weight"));
  ASSERT_TRUE(copy.replace("config.json", "\"words.weight\"", "\"words..weight\""));
  EXPECT_THAT(error(), HasSubstr("the name has an empty part"));
}

TEST_F(Folder, WithoutAWeightIsRefusedEvenIfItIsOneOfMany) {
  Copy gpt2("gpt2");
  auto tensors = gannet::load_safetensors(gpt2.path + "/model.safetensors");
  tensors.erase("transformer.ln_f.bias");  // 1 of 28
  gannet::save_safetensors(gpt2.path + "/model.safetensors", {tensors.begin(), tensors.end()});
  try {
    gannet::from_pretrained<ExportedModule>(gpt2.path);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const gannet::Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("transformer.ln_f.bias"));
    EXPECT_EQ(error.code(), ErrorCode::kMismatch);
  }
  EXPECT_NO_THROW(gannet::from_pretrained<ExportedModule>(gpt2.path, {.allow_missing = true}));
}

TEST_F(Folder, WithAShapeThatIsNotTheFilesIsRefused) {
  ASSERT_TRUE(copy.replace("config.json", "20,\n    8", "21,\n    8"));
  EXPECT_THAT(error(), HasSubstr("words.weight: [20, 8] there, [21, 8] here"));
  ASSERT_TRUE(copy.replace("config.json", "21,\n    8", "4611686018427387904,\n    8"));
  EXPECT_THAT(error(), HasSubstr("the shape is too large"));
}

// What the exporter is for: a change of the graph that still runs is found by its numbers.
TEST_F(Folder, WithOneChangedConstantDoesNotAgreeWithItsProbe) {
  Copy gpt2("gpt2");
  EXPECT_TRUE(gannet::check_exported(gpt2.path).agrees());
  ASSERT_TRUE(gpt2.replace("graph.eval.fp32.json", "0.044715", "0.045715"));
  const gannet::ExportedCheck check = gannet::check_exported(gpt2.path);
  EXPECT_FALSE(check.agrees());
  for (const auto& row : check.rows) EXPECT_EQ(row.agrees, row.graph != "eval.fp32") << row.graph;
}

TEST_F(Folder, WithoutAProbeCannotBeChecked) {
  archive::fs::remove(copy.path + "/probe.json");
  EXPECT_THROW(gannet::check_exported(copy.path), gannet::Error);
  EXPECT_EQ(error(), "nothing was thrown");
}

}  // namespace
