// The strict pass, aliases and deprecated keys, merging, provenance, and the public Config.
#include "config/document.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "expect_error.h"

namespace gannet::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::shared_ptr<const Document> from(const std::string& text) { return Document::from_text(text, "t.json"); }

TEST(Document, ValuesAreConvertedAndKeysHaveTheirFirstName) {
  const auto document =
      from(R"({"bfloat16": {"enabled": "yes"}, "zero_optimization": {"prefetch_bucket_size": 5e7}, "steps_per_print": "10"})");
  EXPECT_EQ(*document->find("/bf16/enabled"), Value(true));
  EXPECT_EQ(*document->find("/zero_optimization/stage3_prefetch_bucket_size"), Value(50000000));
  EXPECT_EQ(*document->find("/steps_per_print"), Value(10));
  EXPECT_EQ(document->origin_of("/bf16/enabled").to_string(), "t.json:1:15");
}

TEST(Document, NotesPassAnywhereAndAreDropped) {
  const auto document =
      from(R"({"_a": [1], "x-b": {"c": 1}, "optimizer": {"_d": 1, "params": {"_e": 2, "lr": 1, "x": {"x-f": 3}}}})");
  EXPECT_EQ(Value(document->root()).to_json(), R"({"optimizer": {"params": {"lr": 1, "x": {}}}})");
}

TEST(Document, ParamsAreFree) {
  for (const char* block : {"optimizer", "scheduler", "accelerator", "comm"})
    EXPECT_NO_THROW(from(std::string("{\"") + block + R"(": {"type": "Mine", "params": {"anything": [1, {"b": null}]}}})"));
}

TEST(Document, SectionsThatDeepSpeedHandsOnTakeOtherMembers) {
  EXPECT_NO_THROW(from(R"({"amp": {"enabled": false, "opt_level": "O1"}})"));
  EXPECT_EQ(error_of([] { from(R"({"aio": {"blocksize": 1}})"); }).message(),
            "t.json:1:10: unknown key 'blocksize' in aio; did you mean 'block_size'?");
}

TEST(Document, DeprecatedKeysAreMappedAndSaid) {
  const auto document = from(
      R"({"zero_optimization": {"cpu_offload": true, "cpu_offload_param": "false", "stage3_gather_fp16_weights_on_model_save": 1}})");
  EXPECT_EQ(*document->find("/zero_optimization/offload_optimizer/device"), Value("cpu"));
  EXPECT_TRUE(document->find("/zero_optimization/offload_param")->is_null());
  EXPECT_EQ(*document->find("/zero_optimization/stage3_gather_16bit_weights_on_model_save"), Value(true));
  EXPECT_THAT(document->notices(),
              ElementsAre(HasSubstr("t.json:1:24: zero_optimization.cpu_offload is deprecated: write offload_optimizer"),
                          HasSubstr("offload_param"), HasSubstr("stage3_gather_16bit_weights_on_model_save")));
}

TEST(Document, ADeprecatedKeyAndItsSuccessorAreNotGivenTogetherNotEvenUnderItsAlias) {
  for (const char* successor : {"stage3_gather_16bit_weights_on_model_save", "gather_16bit_weights_on_model_save"}) {
    const std::string text =
        std::string(R"({"zero_optimization": {")") + successor + R"(": true, "stage3_gather_fp16_weights_on_model_save": true}})";
    EXPECT_THAT(error_of([&] { from(text); }).message(), HasSubstr("and both are given"));
  }
}

TEST(Document, ABooleanZeroOptimizationIsAStage) {
  const auto document = from(R"({"zero_optimization": false})");
  EXPECT_EQ(*document->find("/zero_optimization/stage"), Value(0));
  EXPECT_THAT(document->notices(), ElementsAre(HasSubstr("a boolean zero_optimization is deprecated")));
  EXPECT_EQ(error_of([] { from(R"({"zero_optimization": 1})"); }).message(),
            "t.json:1:2: zero_optimization must be an object { ... }, found 1");
}

TEST(Document, NullIsLegalOnlyWhereItIsTheDefault) {
  EXPECT_NO_THROW(from(R"({"train_batch_size": null, "optimizer": null, "zero_optimization": {"offload_optimizer": null}})"));
  EXPECT_THAT(error_of([] { from(R"({"gradient_clipping": null})"); }).next_step(), HasSubstr("default, 1.0"));
}

TEST(Document, MergingIsDeepAndKeepsTheOrigins) {
  const auto file = from(
      "{\"train_batch_size\": 8,\n\"optimizer\": {\"type\": \"Adam\",\n\"params\": {\"lr\": 1, \"eps\": 2}},\n\"plugins\": "
      "{\"path\": [\"a\"]}}");
  const auto merged = file->merged(
      Dict{
          {"optimizer", Dict{{"params", Dict{{"lr", 3}}}}}, {"plugins", Dict{{"path", "b"}}}, {"bfloat16", Dict{{"enabled", 1}}}},
      "command line");
  EXPECT_EQ(
      Value(merged->root()).to_json(),
      R"({"train_batch_size": 8, "optimizer": {"type": "Adam", "params": {"lr": 3, "eps": 2}}, "plugins": {"path": ["b"]}, "bf16": {"enabled": true}})");
  EXPECT_EQ(merged->origin_of("/optimizer/params/lr").to_string(), "command line");
  EXPECT_EQ(merged->origin_of("/optimizer/params/eps").to_string(), "t.json:3:21");
  EXPECT_EQ(merged->origin_of("/optimizer/type").to_string(), "t.json:2:15");
  EXPECT_EQ(merged->origin_of("/plugins/path").to_string(), "command line");
  EXPECT_EQ(merged->origin_of("/bf16/enabled").to_string(), "command line");
  EXPECT_EQ(*file->find("/optimizer/params/lr"), Value(1)) << "the document merged into stays as it was";
}

TEST(Document, NullAndAutoMergedOverAValueTakeItAway) {
  const auto merged = from(R"({"steps_per_print": 10, "fp16": {"enabled": true}})")
                          ->merged(Dict{{"steps_per_print", nullptr}, {"fp16", "auto"}}, "code");
  EXPECT_TRUE(merged->find("/steps_per_print")->is_null());
  EXPECT_EQ(merged->find("/fp16/enabled"), nullptr);
  EXPECT_EQ(merged->origin_of("/fp16/enabled").to_string(), "code") << "what was inside is forgotten";
}

TEST(Document, ADictionaryIsCheckedAsAFileIs) {
  EXPECT_EQ(error_of([] { Document::from_dict(Dict{{"train_batch_sise", 8}}, "code"); }).message(),
            "code: unknown key 'train_batch_sise' at the top level; did you mean 'train_batch_size'?");
  EXPECT_THAT(error_of([] { Document::from_dict(Dict{{"train_batch_size", 8}, {"train_batch_size", 9}}, "code"); }).message(),
              HasSubstr("appears twice"));
  Dict twice;
  twice.entries().emplace_back("lr", 1);
  twice.entries().emplace_back("lr", 2);
  EXPECT_THAT(error_of([&] { Document::from_dict(Dict{{"optimizer", Dict{{"params", twice}}}}, "code"); }).message(),
              HasSubstr("appears twice in optimizer.params"));
}

TEST(Document, ADictionaryNestedTooDeepIsRefused) {
  Value deep = 1;
  for (int i = 0; i < 100; ++i) deep = List{deep};
  EXPECT_THAT(error_of([&] { Document::from_dict(Dict{{"comm", Dict{{"params", Dict{{"x", deep}}}}}}, "code"); }).message(),
              HasSubstr("nested deeper"));
}

TEST(Config, IsAPathOrTextOrBase64) {
  const std::string path = testing::TempDir() + "/gannet_config_test.json";
  std::ofstream(path) << "{\"train_batch_size\": 8}";
  EXPECT_EQ(Config(path).document()->origin_of("/train_batch_size").to_string(), path + ":1:2");
  EXPECT_EQ(*Config(" \n{\"train_batch_size\": 9}").document()->find("/train_batch_size"), Value(9));
  EXPECT_EQ(*Config("eyJ0cmFpbl9iYXRjaF9zaXplIjogMTB9").document()->find("/train_batch_size"), Value(10));
  EXPECT_EQ(*Config("eyJsb2dfbGV2ZWwiOiAiaW5mbyIsICJfIjogIj8_Pz4-In0=").document()->find("/log_level"), Value("info"))
      << "URL-safe letters and padding";
  EXPECT_EQ(error_of([] { Config("no_such_config.json"); }).code(), ErrorCode::kNotFound);
  EXPECT_EQ(error_of([] { Config(""); }).code(), ErrorCode::kConfig);
}

TEST(Config, OverwritingAnEmptyConfigMakesOne) {
  Config config;
  EXPECT_TRUE(config.empty());
  config.overwrite(Dict{{"train_batch_size", 8}}).overwrite(Dict{{"train_batch_size", 4}}, "command line");
  EXPECT_EQ(*config.document()->find("/train_batch_size"), Value(4));
  EXPECT_EQ(config.document()->origin_of("/train_batch_size").to_string(), "command line");
}

}  // namespace
}  // namespace gannet::config
