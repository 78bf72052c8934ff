// The order of samples, the report of a step, and the texts of mistakes, without an engine.
#include <ATen/Context.h>
#include <gannet/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "data.h"
#include "generate.h"
#include "model.h"
#include "report.h"

namespace gpt2 {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class Gpt2Data : public testing::Test {
 protected:
  void TearDown() override { fs::remove(path_); }
  std::string file(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary) << bytes;
    return path_;
  }
  static std::vector<int64_t> values(const at::Tensor& tensor) {
    return {tensor.const_data_ptr<int64_t>(), tensor.const_data_ptr<int64_t>() + tensor.numel()};
  }
  template <class Function>
  static std::string error_of(Function function, gannet::ErrorCode code) {
    try {
      function();
    } catch (const gannet::Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return "";
  }
  const std::string path_ = (fs::temp_directory_path() / ("gannet-gpt2-data-" + std::to_string(::getpid()))).string();
};

TEST_F(Gpt2Data, a_sample_is_its_tokens_and_targets_are_shifted_by_one) {
  const auto batch = Tokens::from_file(file("abcdefghij"), 1).batch(1, 2, 3);
  EXPECT_EQ(batch.inputs.sizes().vec(), (std::vector<int64_t>{2, 3}));
  EXPECT_THAT(values(batch.inputs), ElementsAre('d', 'e', 'f', 'g', 'h', 'i'));
  EXPECT_THAT(values(batch.targets), ElementsAre('e', 'f', 'g', 'h', 'i', 'j'));
}

TEST_F(Gpt2Data, samples_wrap_round_at_the_end) {
  const auto batch = Tokens::from_file(file("abcde"), 1).batch(1, 1, 4);
  EXPECT_THAT(values(batch.inputs), ElementsAre('e', 'a', 'b', 'c'));
  EXPECT_THAT(values(batch.targets), ElementsAre('a', 'b', 'c', 'd'));
}

TEST_F(Gpt2Data, two_byte_tokens_are_little_endian) {
  const auto batch = Tokens::from_file(file(std::string("\x01\x02\xff\xff\x03\x00", 6)), 2).batch(0, 1, 2);
  EXPECT_THAT(values(batch.inputs), ElementsAre(0x0201, 0xffff));
  EXPECT_THAT(values(batch.targets), ElementsAre(0xffff, 3));
}

TEST_F(Gpt2Data, what_is_held_out_is_the_end_and_is_not_trained_on) {
  const auto [train, held_out] = Tokens::from_file(file("abcdefghij"), 1).split(0.2);
  EXPECT_EQ(train.size(), 8);
  EXPECT_THAT(values(held_out.batch(0, 1, 1).inputs), ElementsAre('i'));
  EXPECT_THAT(values(train.batch(2, 1, 4).inputs), ElementsAre('a', 'b', 'c', 'd')) << "wraps at its own end";
}

TEST_F(Gpt2Data, unigram_entropy_is_that_of_the_frequencies) {
  EXPECT_NEAR(Tokens::from_file(file("aabb"), 1).unigram_entropy(), std::log(2.0), 1e-12);
  EXPECT_EQ(Tokens::from_file(file("aaaa"), 1).unigram_entropy(), 0);
}

TEST_F(Gpt2Data, files_that_cannot_be_are_named_with_the_reason) {
  EXPECT_THAT(error_of([&] { Tokens::from_file(path_ + ".missing", 1); }, gannet::ErrorCode::kNotFound), HasSubstr(".missing"));
  EXPECT_THAT(error_of([&] { Tokens::from_file(file("abc"), 2); }, gannet::ErrorCode::kCorrupt),
              HasSubstr("3 bytes, not a whole number of tokens of 2"));
  EXPECT_THAT(error_of([&] { Tokens::from_file(file(""), 1); }, gannet::ErrorCode::kCorrupt), HasSubstr("has 0 tokens"));
  EXPECT_THAT(error_of([&] { Tokens::from_file(file("ab\xff"), 1).check(128); }, gannet::ErrorCode::kMismatch),
              HasSubstr("token 2 is 255, the model has a vocabulary of 128"));
}

TEST_F(Gpt2Data, a_metrics_line_has_the_keys_that_others_read) {
  MetricsFile metrics(path_);
  metrics.write({.step = 3, .loss = 2.5, .lr = 0.125, .grad_norm = 1.5, .loss_scale = 1024, .skipped = true, .seconds = 0.25});
  metrics.write({});
  std::ifstream in(path_);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}),
            "{\"step\": 3, \"loss\": 2.5, \"lr\": 0.125, \"grad_norm\": 1.5, \"loss_scale\": 1024.0, \"skipped\": true, "
            "\"seconds\": 0.25}\n"
            "{\"step\": 0, \"loss\": 0.0, \"lr\": 0.0, \"grad_norm\": null, \"loss_scale\": 1.0, \"skipped\": false, "
            "\"seconds\": 0.0}\n");
}

TEST_F(Gpt2Data, generation_is_repeatable_and_goes_past_the_models_positions) {
  at::manual_seed(1);
  Gpt model(GptOptions{.positions = 8, .width = 16, .layers = 1, .heads = 2});
  const auto next_logits = [&](const at::Tensor& tokens) { return model->forward(tokens); };
  const auto text = generate(next_logits, 8, {10}, 20, 5);
  EXPECT_EQ(text.size(), 20u);
  EXPECT_EQ(text, generate(next_logits, 8, {10}, 20, 5));
  EXPECT_NE(text, generate(next_logits, 8, {10}, 20, 6));
  EXPECT_EQ(to_text({'a', 0, '\n'}, 256), "a?\n");
}

}  // namespace
}  // namespace gpt2
