// forward() checks the batch before it runs anything, and names what does not fit.
#include <gannet/gannet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "exported/archive.h"

namespace {

using gannet::ErrorCode;
using gannet::ExportedModule;
using gannet::NamedBatch;
using testing::AllOf;
using testing::HasSubstr;

std::string error_of(ExportedModule& model, const NamedBatch& batch, ErrorCode wanted = ErrorCode::kArgument) {
  try {
    model.forward(batch);
  } catch (const gannet::Error& error) {
    EXPECT_EQ(error.code(), wanted) << error.what();
    return error.what();
  }
  return "nothing was thrown";
}

at::Tensor tokens(std::vector<int64_t> shape) { return torch::randint(1, 40, shape, at::kLong); }

class Batch : public testing::Test {
 protected:
  std::string error(const NamedBatch& batch) { return error_of(*gpt2, batch); }
  std::shared_ptr<ExportedModule> gpt2 = gannet::from_pretrained<ExportedModule>(archive::folder("gpt2"));
};

TEST_F(Batch, ThatFitsRuns) {
  EXPECT_EQ(error({{"input_ids", tokens({3, 6})}, {"labels", tokens({3, 6})}}), "nothing was thrown");
}

TEST_F(Batch, NamesAreThoseOfTheModel) {
  EXPECT_THAT(error({{"input_ids", tokens({3, 6})}}),
              AllOf(HasSubstr("the batch has no 'labels'"), HasSubstr("input_ids, labels")));
  EXPECT_THAT(
      error({{"input_ids", tokens({3, 6})}, {"labels", tokens({3, 6})}, {"input_id", tokens({3, 6})}}),
      AllOf(HasSubstr("the batch has 'input_id', which the model does not take"), HasSubstr("did you mean 'input_ids'?")));
  EXPECT_THAT(error({}), HasSubstr("the batch has no 'input_ids'"));
}

TEST_F(Batch, DtypesAndRanksAreThoseOfTheModel) {
  EXPECT_THAT(error({{"input_ids", tokens({3, 6}).to(at::kInt)}, {"labels", tokens({3, 6})}}),
              AllOf(HasSubstr("input 'input_ids' is int32[3, 6]"), HasSubstr("train.fp32 takes int64[s0, s1]")));
  EXPECT_THAT(error({{"input_ids", tokens({6})}, {"labels", tokens({3, 6})}}), HasSubstr("give a tensor of 2 dimensions"));
  EXPECT_THAT(error({{"input_ids", at::Tensor()}, {"labels", tokens({3, 6})}}), HasSubstr("'input_ids' is an undefined tensor"));
  EXPECT_THAT(error({{"input_ids", tokens({3, 6}).to(at::kMeta)}, {"labels", tokens({3, 6})}}),
              AllOf(HasSubstr("'input_ids' is on meta, and the parameters are on cpu"), HasSubstr("gannet::to_device")));
}

TEST_F(Batch, SizesKeepTheRangesAndRelationsOfTheExport) {
  EXPECT_THAT(error({{"input_ids", tokens({1, 6})}, {"labels", tokens({1, 6})}}),
              HasSubstr("input_ids.size(0) is 1, and the graph takes at least 2"));
  EXPECT_THAT(error({{"input_ids", tokens({3, 6})}, {"labels", tokens({3, 7})}}),
              AllOf(HasSubstr("does not hold"), HasSubstr("input_ids.size(1) = 6"), HasSubstr("labels.size(1) = 7")));
  const auto residual = gannet::from_pretrained<ExportedModule>(archive::folder("residual"));
  EXPECT_THAT(error_of(*residual, {{"image", torch::rand({2, 4, 6, 6})}, {"label", tokens({2}) % 5}}),
              HasSubstr("its dimension 1 is 4, and became constant in the export: 3"));
  EXPECT_THAT(error_of(*residual, {{"image", torch::rand({2, 3, 6, 6})}, {"label", tokens({3}) % 5}}),
              HasSubstr("dimension 0 is 3, and is to be image.size(0)"));
}

TEST_F(Batch, SizesBeyondTheRangeAreRefusedWithTheInput) {
  archive::Copy copy("gpt2");
  ASSERT_TRUE(copy.replace("graph.train.fp32.json", R"({"name":"s1","min":2,"max":null})", R"({"name":"s1","min":4,"max":8})"));
  const auto model = gannet::from_pretrained<ExportedModule>(copy.path);
  const auto error_of_length = [&](int64_t length) {
    return error_of(*model, {{"input_ids", tokens({3, length})}, {"labels", tokens({3, length})}});
  };
  EXPECT_EQ(error_of_length(8), "nothing was thrown");
  EXPECT_THAT(error_of_length(9),
              AllOf(HasSubstr("input_ids.size(1) is 9, and the graph takes at most 8"), HasSubstr("cut the data")));
  EXPECT_THAT(error_of_length(3), HasSubstr("input_ids.size(1) is 3, and the graph takes at least 4"));
}

TEST_F(Batch, AnErrorOfAnOperatorNamesItsLayer) {
  EXPECT_THAT(error({{"input_ids", tokens({3, 6}) + 100}, {"labels", tokens({3, 6})}}),
              AllOf(HasSubstr("operator aten.embedding.default"), HasSubstr("layer 'transformer.wte'"), HasSubstr("int64[")));
  // More tokens than the model has positions: the embedding of positions says so.
  EXPECT_THAT(error({{"input_ids", tokens({2, 40})}, {"labels", tokens({2, 40})}}), HasSubstr("layer 'transformer.wpe'"));
}

TEST_F(Batch, NeedsAGraphOfTheModesAndDtypesOfTheModule) {
  archive::Copy copy("gpt2");
  ASSERT_TRUE(copy.replace("config.json", "\"eval.bf16\",", ""));
  ASSERT_TRUE(copy.replace("config.json", "\"train.bf16\",", ""));
  const NamedBatch batch = {{"input_ids", tokens({3, 6})}, {"labels", tokens({3, 6})}};
  const auto half = gannet::from_pretrained<ExportedModule>(copy.path, {.dtype = "bfloat16"});
  EXPECT_THAT(error_of(*half, batch, ErrorCode::kUnsupported),
              AllOf(HasSubstr("there is no graph for parameters of bfloat16; there are eval.fp32, train.fp32"),
                    HasSubstr("--dtypes fp32,bf16"), HasSubstr("torch_autocast")));
  const auto sixteen = gannet::from_pretrained<ExportedModule>(archive::folder("gpt2"), {.dtype = "float16"});
  EXPECT_THAT(error_of(*sixteen, batch, ErrorCode::kUnsupported), HasSubstr("no graph for parameters of float16"));
  ASSERT_TRUE(copy.replace("config.json", "\"eval.fp32\",", ""));
  const auto train_alone = gannet::from_pretrained<ExportedModule>(copy.path);
  EXPECT_EQ(error_of(*train_alone, batch), "nothing was thrown");
  train_alone->eval();
  EXPECT_THAT(error_of(*train_alone, batch, ErrorCode::kUnsupported),
              AllOf(HasSubstr("there is no eval graph, and the module is in eval mode"), HasSubstr("--modes train,eval")));
}

TEST_F(Batch, BuffersHaveTheDtypeOfTheGraph) {
  const auto residual = gannet::from_pretrained<ExportedModule>(archive::folder("residual"), {.dtype = "bfloat16"});
  for (const auto& entry : residual->named_buffers())
    if (entry.value().is_floating_point()) at::Tensor(entry.value()).set_data(entry.value().to(at::kFloat));
  EXPECT_THAT(error_of(*residual, {{"image", torch::rand({2, 3, 6, 6})}, {"label", tokens({2}) % 5}}, ErrorCode::kUnsupported),
              AllOf(HasSubstr("is float32, and the graph was exported with bfloat16"), HasSubstr("buffer_dtype")));
}

TEST_F(Batch, OfFrozenParametersHasNoGradient) {
  for (auto& parameter : gpt2->parameters()) parameter.set_requires_grad(false);
  const NamedBatch batch = {{"input_ids", tokens({3, 6})}, {"labels", tokens({3, 6})}};
  EXPECT_THAT(error(batch), HasSubstr("the loss has no gradient"));
  const torch::NoGradGuard guard;
  EXPECT_EQ(error(batch), "nothing was thrown");
}

TEST_F(Batch, DescriptionsOfGraphsAreThoseOfTheFile) {
  const auto graphs = gpt2->config().graphs();
  ASSERT_EQ(graphs.size(), 4u);
  EXPECT_EQ(graphs[3].name, "train.fp32");
  EXPECT_THAT(graphs[3].torch_version, HasSubstr("2.11"));
  EXPECT_GT(graphs[3].nodes, 100u);
  ASSERT_EQ(graphs[3].inputs.size(), 2u);
  EXPECT_EQ(graphs[3].inputs[0].name + " " + graphs[3].inputs[0].dtype + graphs[3].inputs[0].shape, "input_ids int64[s0, s1]");
  EXPECT_THAT(graphs[3].relations, testing::ElementsAre("s1 * s0 == s2 * s3"));
}

}  // namespace
