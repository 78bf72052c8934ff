// What is exported is what DeepSpeed 0.19.6 writes itself: a folder of its own, imported and exported for the same stage and
// ranks, has the same objects and the same bytes of tensors. (bench/parity/there_and_back.py resumes DeepSpeed from exports.)
#include <set>

#include "convert/exported_folders.h"
#include "launched.h"

namespace gannet::convert {
namespace {

using namespace files;

using testing::HasSubstr;

// DeepSpeed's fused Adam counts in one state of a group at stage 0; the others stay at 0. Ours are all equal.
bool is_step_that_fused_adam_ignores(const std::string& path, const std::string& theirs) {
  return path.starts_with("/optimizer/state/") && path.ends_with("/step") && theirs == "0";
}

// DeepSpeed's stage 3 leaves the memory of its padding as it was; ours is zeros. Zero digits of `ours` replace those of `theirs`.
std::string without_padding(std::string theirs, const std::string& ours) {
  const size_t begin = theirs.find("} ");
  if (theirs.size() != ours.size() || begin == std::string::npos) return theirs;
  const size_t width = theirs.starts_with("BFloat16") ? 4 : 8;
  for (size_t at = begin + 2; at + width <= ours.size(); at += width)
    if (ours.substr(at, width).find_first_not_of('0') == std::string::npos) theirs.replace(at, width, width, '0');
  return theirs;
}

struct Exported {
  const char* name;
  int64_t stage, ranks;
};

class SameFiles : public ToDeepSpeed, public testing::WithParamInterface<Exported> {};

TEST_P(SameFiles, HaveTheObjectsAndTheTensorsOfDeepSpeedsOwn) {
  const auto& [name, stage, ranks] = GetParam();
  const auto opened = imported(deepspeeds(name), "in");
  const ToDeepSpeedReceipt receipt = write_deepspeed(opened, file("out"), {stage, ranks, 0}, {});
  EXPECT_EQ(read_text(file("out/latest")), "step4");
  std::set<std::string> files, theirs;
  for (const auto& entry : fs::directory_iterator(deepspeeds(name) + "/step4")) theirs.insert(entry.path().filename());
  for (const auto& entry : fs::directory_iterator(file("out/step4"))) files.insert(entry.path().filename());
  EXPECT_EQ(files, theirs);
  EXPECT_EQ(receipt.files, files.size());
  for (const std::string& each : files) {
    const Leaves wanted(deepspeeds(name) + "/step4/" + each), found(file("out/step4/") + each);
    for (const auto& [path, text] : wanted.texts) {
      if (path.starts_with("/ds_config")) continue;  // the run's own config, which DeepSpeed does not load
      const auto at = found.texts.find(path);
      if (at == found.texts.end())
        ADD_FAILURE() << each << " lacks " << path << ": " << text.substr(0, 60);
      else if (!is_step_that_fused_adam_ignores(path, text))
        EXPECT_EQ(at->second, stage == 3 ? without_padding(text, at->second) : text) << each << ' ' << path;
    }
    const std::set<std::string> kMore = {"/lr_scheduler/last_epoch", "/lr_scheduler/_step_count"};  // for torch's schedulers
    for (const auto& [path, text] : found.texts)
      EXPECT_TRUE(wanted.texts.contains(path) || path.starts_with("/ds_config") || kMore.contains(path))
          << each << " has " << path;
  }
  expect_equal(opened, imported(file("out"), "again"));
}

INSTANTIATE_TEST_SUITE_P(, SameFiles,
                         testing::Values(Exported{"s0-fp32-r1", 0, 1}, Exported{"s0-fp32-r2", 0, 2}, Exported{"s0-bf16-r1", 0, 1},
                                         Exported{"s0-bf16-torch-r1", 0, 1}, Exported{"s1-fp16-r1", 1, 1},
                                         Exported{"s1-sgd-r1", 1, 1}, Exported{"s1-bf16-r2", 1, 2}, Exported{"s2-fp32-r1", 2, 1},
                                         Exported{"s2-fp32-r2", 2, 2}, Exported{"s3-bf16-r1", 3, 1}, Exported{"s3-fp32-r2", 3, 2},
                                         Exported{"s3-bf16-r2", 3, 2}),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           std::erase(name, '-');
                           return name;
                         });

TEST_F(ToDeepSpeed, EveryStageAndNumberOfRanksIsReadBackAsItWas) {
  const auto opened = imported(deepspeeds("s2-fp32-r2"), "in");
  for (int64_t stage = 0; stage < 4; ++stage)
    for (const int64_t ranks : {1, 2, 3, 5, 100})  // with 100, most ranks have none of a group
      for (const int64_t sub_group : {0, 3, 20}) {
        if (sub_group > 0 && stage < 3) continue;
        SCOPED_TRACE(testing::Message() << "stage " << stage << ", ranks " << ranks << ", sub-groups of " << sub_group);
        fs::remove_all(root_ / "out");
        fs::remove_all(root_ / "again");
        write_deepspeed(opened, file("out"), {stage, ranks, sub_group}, {});
        expect_equal(opened, imported(file("out"), "again"));
      }
}

TEST_F(ToDeepSpeed, AUniversalCheckpointIsReadBackAsItWas) {
  for (const char* name : {"s2-fp32-r2", "s1-fp16-r1", "s1-sgd-r1", "s3-bf16-r2"}) {
    SCOPED_TRACE(name);
    for (const char* folder : {"in", "out", "again"}) fs::remove_all(root_ / folder);
    const auto opened = imported(deepspeeds(name), "in");
    const ToDeepSpeedReceipt receipt = write_universal(opened, file("out"), {});
    EXPECT_EQ(receipt.path, file("out/step4_universal"));
    EXPECT_EQ(read_text(file("out/latest_universal")), "step4_universal");
    EXPECT_THAT(receipt.to_string(), HasSubstr("left out: frozen parameters and buffers: DeepSpeed does not read them"));
    expect_equal(opened, imported(file("out"), "again"));
  }
}

TEST_F(ToDeepSpeed, AUniversalCheckpointThatLacksOneParametersStateIsRefused) {
  write_universal(imported(deepspeeds("s2-fp32-r2"), "in"), file("out"), {});
  fs::remove(root_ / "out/step4_universal/zero/second.weight/exp_avg.pt");
  const std::string refused = error_of(ErrorCode::kMismatch, [&] { imported(file("out"), "again"); });
  EXPECT_THAT(refused, HasSubstr("zero/second.weight has no exp_avg.pt, and other parameters have"));
  EXPECT_FALSE(fs::exists(root_ / "again")) << "something was left behind";
  imported(file("out"), "again", {.weights_only = true});
}

TEST_F(ToDeepSpeed, AUniversalCheckpointThatLacksWhatAllParametersHadIsRefusedOrSaysSo) {
  const auto opened = imported(deepspeeds("s2-fp32-r2"), "in");
  const fs::path zero = root_ / "out/step4_universal/zero";
  const auto import_without = [&](const std::vector<std::string>& files) {
    fs::remove_all(root_ / "out");
    fs::remove_all(root_ / "again");
    write_universal(opened, file("out"), {});
    for (const auto& parameter : fs::directory_iterator(zero))
      for (const std::string& name : files)
        if (parameter.is_directory()) fs::remove(parameter.path() / name);
    return import_deepspeed(file("out"), file("again"), {}).to_string();
  };
  EXPECT_THAT(error_of(ErrorCode::kMismatch, [&] { import_without({"exp_avg.pt"}); }),
              HasSubstr("no parameter has exp_avg.pt, and all have exp_avg_sq.pt"));
  EXPECT_THAT(error_of(ErrorCode::kMismatch, [&] { import_without({"exp_avg_sq.pt"}); }),
              HasSubstr("no parameter has exp_avg_sq.pt, and all have exp_avg.pt"));
  EXPECT_THAT(import_without({"exp_avg.pt", "exp_avg_sq.pt"}),
              HasSubstr("not taken: optimizer states: no parameter's folder has any"));
  EXPECT_THAT(import_without({}), testing::Not(HasSubstr("not taken: optimizer states")));
  fs::remove_all(root_ / "again");
  fs::copy(zero / "second.weight", zero / "stray", fs::copy_options::recursive);
  EXPECT_THAT(error_of(ErrorCode::kMismatch, [&] { imported(file("out"), "again"); }),
              HasSubstr("zero/stray: param_shapes of mp_rank_00_model_states.pt has no such parameter"));
  fs::remove_all(zero / "stray");
  fs::remove_all(zero / "second.weight");
  EXPECT_THAT(error_of(ErrorCode::kNotFound, [&] { imported(file("out"), "again"); }),
              testing::AllOf(HasSubstr("second.weight/fp32.pt is missing"), HasSubstr("copy the whole folder again")));
}

// Made of s2-fp32-r2 and s3-bf16-r2 by DeepSpeed itself (make_deepspeed_fixtures.py).
TEST_F(ToDeepSpeed, UniversalCheckpointsOfDeepSpeedHaveWhatTheyWereMadeOf) {
  for (const auto& [name, from] : {std::pair("universal-s2-r2", "s2-fp32-r2"), std::pair("universal-s3-r2", "s3-bf16-r2")}) {
    SCOPED_TRACE(name);
    for (const char* folder : {"in", "again"}) fs::remove_all(root_ / folder);
    expect_equal(imported(deepspeeds(from), "in"), imported(deepspeeds(name), "again"));
  }
}

// Its files and ours have the same objects, apart from those that the other stage reads.
TEST_F(ToDeepSpeed, UniversalCheckpointsHaveTheFilesOfDeepSpeedsOwn) {
  write_universal(imported(deepspeeds("s2-fp32-r2"), "in"), file("out"), {});
  const fs::path theirs = deepspeeds("universal-s2-r2") + "/step4_universal";
  for (const auto& entry : fs::recursive_directory_iterator(theirs)) {
    if (!entry.is_regular_file()) continue;
    const std::string name = fs::relative(entry.path(), theirs);
    const Leaves wanted(entry.path()), found(file("out/step4_universal/") + name);
    for (const auto& [path, text] : wanted.texts) {
      // of the ranks that the converted checkpoint had
      if (path.starts_with("/ds_config") || path == "/dp_world_size" || path.starts_with("/group_paddings") ||
          path.starts_with("/partition_count") || path == "/zero_stage/0" || path == "/universal_checkpoint_info")
        continue;
      const auto at = found.texts.find(path);
      EXPECT_EQ(at == found.texts.end() ? "nothing" : at->second, text) << name << ' ' << path;
    }
  }
}

TEST_F(ToDeepSpeed, NamesAreThoseOfDeepSpeedsModel) {
  const auto opened = imported(deepspeeds("s2-fp32-r2"), "in", {.renames = {{"first.", "net.0."}}});
  const ToDeepSpeedOptions options{{{"net.0.", "first."}}, {{"head.weight", "embed.weight"}}};
  write_deepspeed(opened, file("out"), {2, 2, 0}, options);
  const Leaves found(file("out/step4/mp_rank_00_model_states.pt"));
  EXPECT_TRUE(found.texts.contains("/module/first.weight"));
  EXPECT_EQ(found.texts.at("/module/head.weight"), found.texts.at("/module/embed.weight"));
  EXPECT_EQ(found.texts.at("/shared_params/head.weight"), "embed.weight");
  const auto refused = [&](const ToDeepSpeedOptions& wrong) {
    return error_of(ErrorCode::kArgument, [&] { write_universal(opened, file("other"), wrong); });
  };
  EXPECT_THAT(refused({{{"nte.", ""}}, {}}), HasSubstr("no tensor's name begins with 'nte.'"));
  EXPECT_THAT(refused({{{"net.0.", "second."}}, {}}), HasSubstr("two tensors are named second.weight"));
  EXPECT_THAT(refused({{}, {{"head.weight", "embd.weight"}}}), HasSubstr("has no tensor 'embd.weight'"));
  EXPECT_THAT(refused({{}, {{"embed.weight", "second.weight"}}}), HasSubstr("has a tensor 'embed.weight' of its own"));
  EXPECT_FALSE(fs::exists(root_ / "other")) << "something was left behind";
}

TEST_F(ToDeepSpeed, RefusesWhatDeepSpeedDoesNotHave) {
  const auto opened = imported(deepspeeds("s2-fp32-r2"), "in");
  const auto refused = [&](const DeepSpeedLayout& layout) {
    return error_of(ErrorCode::kArgument, [&] { write_deepspeed(opened, file("out"), layout, {}); });
  };
  EXPECT_THAT(refused({4, 1, 0}), HasSubstr("ZeRO has the stages 0 to 3"));
  EXPECT_THAT(refused({1, 0, 0}), HasSubstr("--ranks 0"));
  EXPECT_THAT(refused({1, 1, 8}), HasSubstr("--sub-group-size is for stage 3, not for stage 1"));
  EXPECT_FALSE(fs::exists(root_ / "out")) << "something was left behind";
  write_deepspeed(opened, file("out"), {1, 1, 0}, {});
  EXPECT_THAT(refused({1, 1, 0}), HasSubstr("has a 'step4' already"));
  // Weights alone have no groups.
  const launched::Outcome weights =
      launched::shell(std::string(GANNET_BINARY_DIR "/bin/gannet checkpoint export ") + file("in") + " " + file("w.bin") +
                      " && " + GANNET_BINARY_DIR "/bin/gannet checkpoint import " + file("w.bin") + " " + file("w"));
  ASSERT_EQ(weights.exit_code, 0) << weights.output;
  EXPECT_THAT(error_of(ErrorCode::kUnsupported, [&] { write_universal(checkpoint::open(file("w"), {}), file("u"), {}); }),
              HasSubstr("only weights"));
}

// ---- the command

launched::Outcome exporting(const std::string& arguments) {
  return launched::shell(GANNET_BINARY_DIR "/bin/gannet checkpoint export " + arguments);
}

TEST_F(ToDeepSpeed, IsACommandThatPrintsTheReceipt) {
  imported(deepspeeds("s1-fp16-r1"), "in");
  const launched::Outcome good = exporting(file("in") + " " + file("out") + " --format deepspeed --stage 3 --ranks 2");
  EXPECT_EQ(good.exit_code, 0) << good.output;
  EXPECT_THAT(good.output,
              testing::AllOf(HasSubstr("exported " + file("in") + "/step4 as " + file("out") + "/step4, 4 files"),
                             HasSubstr("written: optimizer states exp_avg, exp_avg_sq, step 4"),
                             HasSubstr("written: loss scale 131072.0"), HasSubstr("for ZeRO stage 3 on 2 ranks, in fp16"),
                             testing::Not(HasSubstr("round_robin_gradients"))));
  EXPECT_THAT(exporting(file("in") + " " + file("out") + " --format universal").output,
              HasSubstr("not with round_robin_gradients"));
  EXPECT_THAT(exporting(file("in") + " " + file("s2") + " --format deepspeed --stage 2 --ranks 2").output,
              HasSubstr("not with round_robin_gradients"));
  const struct {
    std::string arguments, text;
  } kSlips[] = {
      {file("in") + " " + file("o") + " --format deepspeed --ranks 2", "needs --stage"},
      {file("in") + " " + file("o") + " --format deepspeed --stage 2", "needs --ranks"},
      {file("in") + " " + file("o") + " --format deepspeed --stage 2 --ranks -1", "--ranks is '-1'"},
      {file("in") + " " + file("o") + " --format deepspeed --stage 3 --ranks 1 --sub-group-size -5", "--sub-group-size is '-5'"},
      {file("in") + " " + file("o") + " --format universal --ranks 2", "for any stage and number of ranks"},
      {file("in") + " " + file("o") + " --ranks 2", "--ranks is for --format deepspeed, not for weights alone"},
      {file("in") + " " + file("o") + " --format pt --tied a=b", "--tied is for --format deepspeed and universal, not for pt"},
      {file("in") + " " + file("o") + " --format universal --ema", "--ema is for weights"},
      {file("in") + " " + file("o") + " --format universal --dtype bf16", "--dtype is for weights"},
      {file("in") + " " + file("o") + " --format universal --max-shard-size 1MB", "--max-shard-size is for weights"},
      {file("in") + " " + file("o") + " --format deepspeed --stage 1 --ranks 1 --sub-group-size 8",
       "for stage 3, not for stage 1"},
      {file("in") + " '' --format universal", "the name of the folder to write into is empty"},
      {file("in") + " ''", "the name of the folder to write into is empty"},
      {file("in") + " " + file("o") + " --format universal --tied lm_head", "write ALIAS=NAME"},
      {deepspeeds("s1-fp16-r1") + " " + file("o") + " --format universal", "is already a DeepSpeed checkpoint"},
      {file("in") + " " + file("o.bin") + " --format universal", "contradict each other"},
  };
  for (const auto& [arguments, text] : kSlips) {
    const launched::Outcome outcome = exporting(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_THAT(outcome.output, HasSubstr(text)) << arguments;
  }
  EXPECT_FALSE(fs::exists(root_ / "o"));
}

}  // namespace
}  // namespace gannet::convert
