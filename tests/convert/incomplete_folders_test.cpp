// Folders of DeepSpeed that are not whole, or whose files are not of one save.
#include <cstring>

#include "convert/deepspeed_folders.h"
#include "convert/hand_training.h"

namespace gannet::convert {
namespace {

using testing::HasSubstr;

// Replaces bytes of a file's pickle, the first `before` after the text `key`, and the pickle's checksum.
void change(const std::string& path, const std::string& key, const std::string& before, const std::string& after) {
  std::string bytes = read_text(path);
  const size_t directory = bytes.find("PK\x01\x02"),
               start = 30 + static_cast<uint8_t>(bytes[26]) + 256 * static_cast<uint8_t>(bytes[27]) +
                       static_cast<uint8_t>(bytes[28]) + 256 * static_cast<uint8_t>(bytes[29]);
  uint32_t size = 0;
  std::memcpy(&size, bytes.data() + directory + 24, sizeof(size));
  const auto checksum = [&] {
    return le(static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(bytes.data()) + start, size)));
  };
  const std::string old = checksum();
  const size_t at = bytes.find(before, bytes.find(key));
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, before.size(), after);
  const std::string now = checksum();
  for (size_t place = 0; (place = bytes.find(old, place)) != bytes.npos;) bytes.replace(place, 4, now);
  write_text(path, bytes);
}

TEST_F(DeepSpeedTest, NamesTheFileOfARankThatIsMissing) {
  const std::string from = copy("s2-fp32-r2");
  fs::remove(from + "/step4/zero_pp_rank_1_mp_rank_00_optim_states.pt");
  EXPECT_THAT(refused(ErrorCode::kNotFound, from),
              testing::AllOf(HasSubstr("partition_count is 2"), HasSubstr("those of rank 1 are missing")));
  fs::copy(fixture("s2-fp32-r2") + "/step4/zero_pp_rank_1_mp_rank_00_optim_states.pt", from + "/step4");
  fs::remove(from + "/step4/zero_pp_rank_0_mp_rank_00_optim_states.pt");
  EXPECT_THAT(refused(ErrorCode::kNotFound, from), HasSubstr("zero_pp_rank_0_mp_rank_00_optim_states.pt is missing"));
  fs::remove(from + "/step4/zero_pp_rank_1_mp_rank_00_optim_states.pt");
  EXPECT_THAT(refused(ErrorCode::kNotFound, from), HasSubstr("the ranks' optimizer files"));
  fs::remove(from + "/step4/mp_rank_00_model_states.pt");
  fs::copy(fixture("s2-fp32-r2") + "/step4/zero_pp_rank_0_mp_rank_00_optim_states.pt", from + "/step4");
  EXPECT_THAT(refused(ErrorCode::kNotFound, from), HasSubstr("no file of the model"));
}

TEST_F(DeepSpeedTest, NamesTheModelFileOfARankThatIsMissingAtStage3) {
  const std::string from = copy("s3-fp32-r2");
  fs::remove(from + "/step4/zero_pp_rank_1_mp_rank_00_model_states.pt");
  EXPECT_THAT(refused(ErrorCode::kNotFound, from), HasSubstr("model files of 1 rank"));
}

TEST_F(DeepSpeedTest, RefusesFilesOfARunWithMoreRanks) {
  const std::string from = copy("s2-fp32-r1");
  fs::copy(fixture("s2-fp32-r2") + "/step4/zero_pp_rank_1_mp_rank_00_optim_states.pt", from + "/step4");
  EXPECT_THAT(refused(ErrorCode::kMismatch, from),
              testing::AllOf(HasSubstr("partition_count is 1"), HasSubstr("files of 2 ranks")));
}

TEST_F(DeepSpeedTest, RefusesFilesOfTwoSaves) {
  const std::string from = copy("s2-fp32-r2"), optimizer = "/step4/zero_pp_rank_1_mp_rank_00_optim_states.pt";
  fs::copy(fixture("s3-fp32-r2") + optimizer, from + optimizer, fs::copy_options::overwrite_existing);
  EXPECT_THAT(refused(ErrorCode::kMismatch, from), HasSubstr("zero_stage is 3, and rank 0's 2"));
  const std::string sizes = copy("s1-sgd-r1");  // its groups' sizes are those of a model with other parameters
  fs::copy(fixture("s2-fp32-r2") + "/step4/zero_pp_rank_0_mp_rank_00_optim_states.pt", sizes + "/step4",
           fs::copy_options::overwrite_existing);
  EXPECT_THAT(refused(ErrorCode::kNotFound, sizes), HasSubstr("partition_count is 2"));
}

TEST_F(DeepSpeedTest, RefusesRanksThatSteppedOrCountOtherwiseThanTheFirst) {
  const std::string two = "they are files of two saves";
  for (const char* name : {"s2-fp32-r2", "s3-fp32-r2"}) {
    const std::string from = copy(name);
    change(from + "/step4/zero_pp_rank_1_mp_rank_00_optim_states.pt", "step", "K\x04", "K\x09");
    EXPECT_THAT(refused(ErrorCode::kMismatch, from),
                testing::AllOf(HasSubstr("zero_pp_rank_1_mp_rank_00_optim_states.pt: its optimizer counts 9 steps, and that of "
                                         "zero_pp_rank_0_mp_rank_00_optim_states.pt 4"),
                               HasSubstr(two)));
  }
  for (const char* name : {"s2-fp32-r2", "s3-fp32-r2"}) fs::remove_all(root_ / name);
  const std::string stages = copy("s2-fp32-r2"), from = copy("s3-fp32-r2");
  change(stages + "/step4/zero_pp_rank_1_mp_rank_00_optim_states.pt", "zero_stage", "K\x02\x85", "K\x01\x85");
  EXPECT_THAT(refused(ErrorCode::kMismatch, stages),
              HasSubstr("zero_pp_rank_1_mp_rank_00_optim_states.pt: zero_stage is 1, and rank 0's 2"));
  change(from + "/step4/zero_pp_rank_1_mp_rank_00_model_states.pt", "global_steps", "K\x04", "K\x09");
  EXPECT_THAT(refused(ErrorCode::kMismatch, from),
              testing::AllOf(HasSubstr("zero_pp_rank_1_mp_rank_00_model_states.pt: global_steps is 9, and 4 in "
                                       "zero_pp_rank_0_mp_rank_00_model_states.pt"),
                             HasSubstr(two)));
}

TEST_F(DeepSpeedTest, WarnsOfAModelThatCountsOtherStepsThanItsOptimizer) {
  for (const char* other : {"K\x02", "K\x09"}) {
    fs::remove_all(root_ / "out");
    fs::remove_all(root_ / "s2-fp32-r2");
    const std::string from = copy("s2-fp32-r2");
    change(from + "/step4/mp_rank_00_model_states.pt", "global_steps", "K\x04", other);
    imported(from);
    EXPECT_THAT(receipt_.to_string(), HasSubstr("  warning: the optimizer counts 4 steps, and " + from + "/step4/mp_rank_00"));
  }
  fs::remove_all(root_ / "out");
  imported(fixture("s0-bf16-r1"));  // whose optimizer counts a step as it is made
  EXPECT_THAT(receipt_.to_string(), testing::Not(HasSubstr("warning")));
}

TEST_F(DeepSpeedTest, NamesTheKeyThatPlacesParametersInAnotherOrder) {
  hand::Training run;
  run.optimizer["param_slice_mappings"] =
      hand::list({hand::dict({{"w", hand::dict({{"numel", hand::num(4)}, {"start", hand::num(2)}})}})});
  run.write(file("run"));
  EXPECT_THAT(refused(ErrorCode::kMismatch, file("run")), testing::AllOf(HasSubstr("param_slice_mappings places w differently"),
                                                                         HasSubstr("zero_optimization.round_robin_gradients")));
}

TEST_F(DeepSpeedTest, RefusesPartitionsOfOtherSizesThanTheModels) {
  const std::string from = copy("s2-fp32-r1");
  // The shape of embed.weight in param_shapes, (7, 4), becomes (9, 4).
  change(from + "/step4/mp_rank_00_model_states.pt", "param_shapes", "K\x07K\x04\x86", "K\x09K\x04\x86");
  EXPECT_THAT(refused(ErrorCode::kMismatch, from),
              testing::AllOf(HasSubstr("by param_shapes"), HasSubstr("partitions of 1 rank")));
}

TEST_F(DeepSpeedTest, RefusesOptimizerFilesOfABf16RunBesideOthers) {
  const std::string from = copy("s2-fp32-r2");
  fs::copy(fixture("s1-bf16-r2") + "/step4/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt", from + "/step4");
  EXPECT_THAT(refused(ErrorCode::kMismatch, from), HasSubstr("optimizer files of a bf16 run"));
}

TEST_F(DeepSpeedTest, RefusesAModelOfStage3BesideOneOfAnotherStage) {
  const std::string from = copy("s3-fp32-r2");
  fs::copy(fixture("s2-fp32-r2") + "/step4/mp_rank_00_model_states.pt", from + "/step4");
  EXPECT_THAT(refused(ErrorCode::kMismatch, from), HasSubstr("the model of stage 3"));
}

TEST_F(DeepSpeedTest, RefusesAFileThatIsCut) {
  const std::string from = copy("s3-bf16-r2"), name = from + "/step4/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt";
  for (const uint64_t kept : {fs::file_size(name) / 2, uint64_t{0}}) {
    fs::resize_file(name, kept);
    EXPECT_THAT(refused(ErrorCode::kCorrupt, from), HasSubstr("bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"));
  }
}

TEST_F(DeepSpeedTest, ChoosesNoTagThatNobodyNamed) {
  const std::string from = copy("s2-fp32-r1");
  fs::remove(from + "/latest");
  EXPECT_THAT(refused(ErrorCode::kNotFound, from), testing::AllOf(HasSubstr("no 'latest'"), HasSubstr("--tag step4")));
  write_text(from + "/latest", "step8");
  EXPECT_THAT(refused(ErrorCode::kNotFound, from), testing::AllOf(HasSubstr("names 'step8'"), HasSubstr("there are: step4")));
  EXPECT_THAT(refused(ErrorCode::kNotFound, from, {.tag = "step9"}), HasSubstr("no checkpoint 'step9'"));
  write_text(from + "/latest", "../s2-fp32-r1/step4");
  EXPECT_THAT(refused(ErrorCode::kArgument, from), HasSubstr("is not a tag"));
  EXPECT_THAT(refused(ErrorCode::kArgument, from, {.tag = "step4/"}),
              testing::AllOf(HasSubstr("is not a tag"), HasSubstr("choose one with --tag")));
  EXPECT_THAT(refused(ErrorCode::kNotFound, file("nowhere")), HasSubstr("there is no folder"));
  EXPECT_EQ(imported(from, {.tag = "step4"}).tag(), "step4");
}

TEST_F(DeepSpeedTest, TakesTheFolderOfATagToo) { EXPECT_EQ(imported(fixture("s3-fp32-r2") + "/step4").tag(), "step4"); }

TEST_F(DeepSpeedTest, RefusesWhatItDoesNotImportByName) {
  const struct {
    const char *file, *text;
  } kCases[] = {
      {"layer_03-model_01-model_states.pt", "tensor parallelism (layer_03-model_01-model_states.pt)"},
      {"layer_03-slice_00-model_states.pt", "a pipeline whose topology has axes besides pipe, data and model"},
      {"layer_0_expert_2_mp_rank_00_model_states.pt", "a mixture of experts"},
      {"expp_rank_1_mp_rank_00_optim_states.pt", "a mixture of experts"},
      {"mp_rank_01_model_states.pt", "tensor parallelism (mp_rank_01_model_states.pt)"},
      {"zero/first.weight/fp32.pt", "a universal checkpoint"},
      {"offloaded_tensors/rank00/x.swp", "swap files"},
  };
  for (const auto& [name, text] : kCases) {
    fs::remove_all(root_ / "s2-fp32-r1");
    const std::string from = copy("s2-fp32-r1");
    fs::create_directories(fs::path(from + "/step4/" + name).parent_path());
    write_text(from + "/step4/" + name, "");
    EXPECT_THAT(refused(ErrorCode::kUnsupported, from), HasSubstr(text)) << name;
  }
}

}  // namespace
}  // namespace gannet::convert
