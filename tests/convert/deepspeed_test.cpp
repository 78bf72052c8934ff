// Folders that DeepSpeed 0.19.6 wrote (make_deepspeed_fixtures.py), against what its own accessors said of them.
#include "convert/deepspeed.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/checkpoint.h"
#include "convert/assign.h"
#include "convert/deepspeed_folder.h"
#include "files/pieces.h"
#include "files/support.h"
#include "launched.h"

namespace gannet::convert {
namespace {

using namespace files;

using nlohmann::json;
using testing::HasSubstr;

std::string fixture(const std::string& name) { return std::string(GANNET_SOURCE_DIR) + "/tests/convert/deepspeed/" + name; }

json expected(const std::string& name) { return json::parse(read_text(fixture(name) + "/expected.json")); }

// The bytes of fp32 numbers, as hexadecimal digits.
std::string digits(const checkpoint::Opened& opened, const std::string& name) {
  const checkpoint::TensorInfo* info = opened.find(name);
  if (!info) return "there is no " + name;
  at::Tensor tensor = at::empty({info->numel()}, info->dtype);
  opened.read({{name, 0, tensor}});
  tensor = tensor.to(at::kFloat);
  std::string text;
  for (size_t i = 0; i < tensor.nbytes(); ++i) {
    char two[3];
    std::snprintf(two, sizeof(two), "%02x", static_cast<const unsigned char*>(tensor.const_data_ptr())[i]);
    text += two;
  }
  return text;
}

class DeepSpeedTest : public FolderTest {
 protected:
  checkpoint::Opened imported(const std::string& from, const DeepSpeedOptions& options = {}) {
    receipt_ = import_deepspeed(from, file("out"), options);
    return checkpoint::open(file("out"), {});
  }
  // A copy of a fixture to do harm to.
  std::string copy(const std::string& name) {
    fs::copy(fixture(name), root_ / name, fs::copy_options::recursive);
    return file(name);
  }
  std::string refused(ErrorCode code, const std::string& from, const DeepSpeedOptions& options = {}) {
    const std::string text = error_of(code, [&] { import_deepspeed(from, file("out"), options); });
    EXPECT_FALSE(fs::exists(root_ / "out")) << "something was left behind";
    return text;
  }
  DeepSpeedReceipt receipt_;
};

class EveryFixture : public DeepSpeedTest, public testing::WithParamInterface<const char*> {};

TEST_P(EveryFixture, HasTheMastersMomentsAndNumbersThatDeepSpeedHad) {
  const json wanted = expected(GetParam());
  const auto opened = imported(fixture(GetParam()));
  EXPECT_EQ(opened.tag(), "step4");
  EXPECT_TRUE(opened.verify().empty());
  std::set<std::string> names = {"buffer/0/scale", "client/mask"};
  for (const auto& [name, tensor] : wanted["tensors"].items()) {
    for (const auto& [kind, value] : tensor.items()) {
      if (kind == "shape") continue;
      const std::string stored = kind == "master" ? "parameter/" + name : "state/" + kind + "/" + name;
      EXPECT_EQ(digits(opened, stored), value) << stored;
      EXPECT_EQ(json(opened.find(stored)->shape), tensor["shape"]) << stored;
      EXPECT_EQ(opened.find(stored)->dtype, at::kFloat) << stored;
      names.insert(stored);
    }
  }
  for (const auto& [name, value] : wanted["frozen"].items()) {
    EXPECT_EQ(digits(opened, "parameter/" + name), value) << name;
    names.insert("parameter/" + name);
  }
  EXPECT_EQ(digits(opened, "buffer/0/scale"), "0000003f000000400000c03f");
  std::set<std::string> found;
  for (const auto& tensor : opened.tensors()) found.insert(tensor.name);
  EXPECT_EQ(found, names);

  const Dict& document = opened.document();
  const int64_t applied = wanted["global_steps"].get<int64_t>() - wanted["skipped_steps"].get<int64_t>();
  EXPECT_EQ(document.find("global_steps")->as_int(), wanted["global_steps"]);
  EXPECT_EQ(document.find("skipped_steps")->as_int(), wanted["skipped_steps"]);
  EXPECT_EQ(document.find("global_samples")->as_int(), wanted["global_samples"]);
  EXPECT_EQ(document.find("schedule_position")->as_int(), applied);
  // Its bf16 at stage 0 takes a step with gradients of zero while it is built, and counts it.
  EXPECT_EQ(document.find("applied_steps")->as_int(), applied + std::string(GetParam()).starts_with("s0-bf16"));
  EXPECT_EQ(document.find("loss_scaler")->at("scale").as_number(), wanted["scale"]);
  const List& groups = document.find("groups")->as_list();
  ASSERT_EQ(groups.size(), 2u);
  for (size_t g = 0; g < 2; ++g) EXPECT_EQ(groups[g].at("hyper").at("lr").as_number(), wanted["lr"][g]);
  EXPECT_EQ(groups[1].at("hyper").at("weight_decay").as_number(), 0);
  EXPECT_FALSE(document.find("frozen_excluded")->as_bool());
  EXPECT_EQ(document.find("client_state")->to_json(), R"({"epoch": 2, "best": 0.25, "words": ["a", null, true]})");
}

INSTANTIATE_TEST_SUITE_P(, EveryFixture,
                         testing::Values("s0-fp32-r1", "s0-fp32-r2", "s0-bf16-r1", "s0-bf16-torch-r1", "s1-fp16-r1", "s1-sgd-r1",
                                         "s1-bf16-r2", "s1-bf16-accumulated-r2", "s2-fp32-r1", "s2-fp32-r2", "s3-bf16-r1",
                                         "s3-fp32-r2", "s3-bf16-r2"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST_F(DeepSpeedTest, SaysWhatItTookAndWhatItDidNot) {
  imported(fixture("s2-fp32-r2"));
  const std::string text = receipt_.to_string();
  for (const char* line :
       {"taken: 7 trained parameters, 87 elements as fp32, 2 frozen, 1 buffer", "taken: optimizer states exp_avg, exp_avg_sq",
        "taken: step 4, 0 skipped, 16 samples seen", "taken: the schedule's position, 4",
        "taken: client_state: ", "not taken: head.weight: another name of embed.weight", "not taken: random-number states"})
    EXPECT_THAT(text, HasSubstr(line));
}

// make_deepspeed_fixtures.py does not make these three: each is a checkpoint that a user reported, made again (deepspeed_cases.py
// makes the like at each stage, in each precision).
TEST_F(DeepSpeedTest, AGroupOfFewElementsIsWholeHoweverManyRanksAreShortOrEmpty) {
  const auto opened = imported(fixture("s1-clip-r4"));  // masters of 2, 1, 0 and 0 elements, states of 2 each
  const json wanted = expected("s1-clip-r4");
  EXPECT_EQ(wanted.size(), 4u);
  for (const auto& [name, values] : wanted.items()) {
    const checkpoint::TensorInfo* info = opened.find("parameter/" + name);
    ASSERT_TRUE(info) << name;
    const at::Tensor tensor = at::empty({info->numel()}, info->dtype);
    opened.read({{"parameter/" + name, 0, tensor}});
    ASSERT_EQ(tensor.numel(), static_cast<int64_t>(values.size())) << name;
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(tensor.const_data_ptr<float>()[i], values[i].get<float>()) << name << ' ' << i;
    EXPECT_TRUE(opened.find("state/exp_avg/" + name) && opened.find("state/exp_avg_sq/" + name)) << name;
  }
}

TEST_F(DeepSpeedTest, FrozenParametersThatTheSaveLeftOutAreToldAndStayAsTheyAre) {
  const auto opened = imported(fixture("s2-frozen-left-out-r2"));
  EXPECT_TRUE(opened.document().find("frozen_excluded")->as_bool());
  EXPECT_THAT(receipt_.to_string(), HasSubstr("not taken: frozen parameters: the save left them out"));
}

TEST_F(DeepSpeedTest, ObjectsOfClientStateAreLeftOutByNameAndStopNothing) {
  const auto opened = imported(fixture("s2-numpy-state-r2"));
  EXPECT_EQ(opened.document().find("client_state")->as_dict().find("iteration")->as_int(), 10);
  EXPECT_THAT(receipt_.to_string(),
              testing::AllOf(HasSubstr("not taken: 'np_rng_state' of client_state: np_rng_state[1] is an object of class "),
                             HasSubstr("taken: optimizer states exp_avg, exp_avg_sq")));
}

TEST_F(DeepSpeedTest, KeepsTheLossScalersMemoryOfOverflows) {
  const auto opened = imported(fixture("s1-fp16-r1"));
  const Value& scaler = *opened.document().find("loss_scaler");
  ASSERT_GT(opened.document().find("skipped_steps")->as_int(), 0) << "the fixture should have overflows";
  const json wanted = expected("s1-fp16-r1")["scaler"];
  EXPECT_EQ(scaler.at("iteration").as_int(), wanted[0]);
  EXPECT_EQ(scaler.at("last_overflow_iteration").as_int(), wanted[1]);
  EXPECT_EQ(scaler.at("hysteresis_left").as_int(), wanted[2]);
}

TEST_F(DeepSpeedTest, RenamesPrefixesAndRefusesOnesThatNameNothing) {
  const auto opened = imported(fixture("s3-fp32-r2"), {.renames = {{"first.", "net.0."}, {"second", "net.2"}}});
  EXPECT_TRUE(opened.find("parameter/net.0.weight"));
  EXPECT_TRUE(opened.find("state/exp_avg/net.2.bias"));
  EXPECT_FALSE(opened.find("parameter/first.weight"));
  fs::remove_all(root_ / "out");
  EXPECT_THAT(refused(ErrorCode::kArgument, fixture("s3-fp32-r2"), {.renames = {{"thrid.", ""}}}),
              HasSubstr("no tensor's name begins with 'thrid.'"));
  EXPECT_THAT(refused(ErrorCode::kArgument, fixture("s3-fp32-r2"), {.renames = {{"second.", "first."}}}),
              HasSubstr("two tensors are named first."));
}

TEST_F(DeepSpeedTest, LeavesACheckpointOfTheSameNameAlone) {
  imported(fixture("s2-fp32-r1"));
  EXPECT_THAT(error_of(ErrorCode::kArgument, [&] { import_deepspeed(fixture("s3-fp32-r2"), file("out"), {}); }),
              HasSubstr("has a 'step4' already"));
}

TEST_F(DeepSpeedTest, RefusesStatesThatAreNotOnePerElementByTheirNames) {
  EXPECT_THAT(refused(ErrorCode::kUnsupported, fixture("s1-nadam-r1")),
              testing::AllOf(HasSubstr("the optimizer state 'mu_product'"), HasSubstr("--weights-only")));
  const auto opened = imported(fixture("s1-nadam-r1"), {.weights_only = true});
  for (const auto& tensor : opened.tensors()) EXPECT_FALSE(tensor.name.starts_with("state/")) << tensor.name;
}

// ---- folders that are not whole

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
  EXPECT_THAT(refused(ErrorCode::kCorrupt, from), HasSubstr("there is no 'single_partition_of_fp32_groups'"));
  const std::string sizes = copy("s1-sgd-r1");  // its groups' sizes are those of a model with other parameters
  fs::copy(fixture("s2-fp32-r2") + "/step4/zero_pp_rank_0_mp_rank_00_optim_states.pt", sizes + "/step4",
           fs::copy_options::overwrite_existing);
  EXPECT_THAT(refused(ErrorCode::kNotFound, sizes), HasSubstr("partition_count is 2"));
}

TEST_F(DeepSpeedTest, RefusesPartitionsOfOtherSizesThanTheModels) {
  const std::string from = copy("s2-fp32-r1"), name = from + "/step4/mp_rank_00_model_states.pt";
  std::string bytes = read_text(name);
  // The shape of embed.weight in param_shapes, (7, 4), becomes (9, 4), and the pickle's checksum what it then is.
  const size_t directory = bytes.find("PK\x01\x02"),
               start = 30 + static_cast<uint8_t>(bytes[26]) + 256 * static_cast<uint8_t>(bytes[27]) +
                       static_cast<uint8_t>(bytes[28]) + 256 * static_cast<uint8_t>(bytes[29]);
  uint32_t size = 0;
  std::memcpy(&size, bytes.data() + directory + 24, sizeof(size));
  const auto checksum = [&] {
    return le(static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(bytes.data()) + start, size)));
  };
  const std::string before = checksum();
  const size_t at = bytes.find("K\x07K\x04\x86", bytes.find("param_shapes"));
  ASSERT_NE(at, std::string::npos);
  bytes[at + 1] = 9;
  const std::string after = checksum();
  for (size_t place = 0; (place = bytes.find(before, place)) != bytes.npos;) bytes.replace(place, 4, after);
  write_text(name, bytes);
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

// ---- the command

launched::Outcome run(const std::string& arguments) {
  return launched::shell(GANNET_BINARY_DIR "/bin/gannet checkpoint import " + arguments);
}

TEST_F(DeepSpeedTest, IsACommandThatPrintsTheReceipt) {
  const launched::Outcome good = run(fixture("s3-bf16-r2") + " " + file("out") + " --rename first.=start.");
  EXPECT_EQ(good.exit_code, 0) << good.output;
  EXPECT_THAT(good.output, testing::AllOf(HasSubstr("imported " + fixture("s3-bf16-r2") + "/step4 as " + file("out") + "/step4"),
                                          HasSubstr("taken: step 4")));
  EXPECT_TRUE(checkpoint::open(file("out"), {}).find("parameter/start.weight"));
  const launched::Outcome nowhere = run(file("nowhere") + " " + file("out2"));
  EXPECT_NE(nowhere.exit_code, 0);
  EXPECT_THAT(nowhere.output, HasSubstr("there is no folder"));
  const launched::Outcome rename = run(fixture("s3-bf16-r2") + " " + file("out2") + " --rename first");
  EXPECT_NE(rename.exit_code, 0);
  EXPECT_THAT(rename.output, HasSubstr("write FROM=TO"));
}

// ---- its parts

TEST_F(DeepSpeedTest, PiecesAreReadFromAnyByteOn) {
  const auto file = std::make_shared<files::PtFile>(
      files::PtFile::open(fixture("s2-fp32-r2") + "/step4/zero_pp_rank_0_mp_rank_00_optim_states.pt"));
  const files::Node partition = files::Node(file).at("optimizer_state_dict").at("single_partition_of_fp32_groups").items()[0];
  files::ConcatenatedTensors both;
  both.add(partition);
  both.add_zeros(3);
  both.add(partition);
  const int64_t numel = partition.tensor().numel();
  const at::Tensor values = file->read(partition.tensor()).view({-1});
  const files::StoredPieces cut = both.cut(numel - 2, 7);
  ASSERT_EQ(cut.size(), 3u);
  const at::Tensor wanted = at::cat({values.narrow(0, numel - 2, 2), at::zeros({3}), values.narrow(0, 0, 2)});
  EXPECT_TRUE(read(cut, 0, 7, at::kFloat).equal(wanted));
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const at::Tensor converted = wanted.to(dtype);
    const auto bytes = stored(cut, dtype);
    for (size_t begin = 0; begin < converted.nbytes(); ++begin) {
      std::string part(converted.nbytes() - begin, '?');
      bytes->copy_out(begin, part.size(), part.data());
      EXPECT_EQ(part, std::string(static_cast<const char*>(converted.const_data_ptr()) + begin, part.size())) << begin;
    }
  }
}

TEST(Assign, FindsTheOneWayThatFitsAndTellsSeveralFromNone) {
  const auto by_size = [](std::vector<int64_t> candidates, std::vector<std::vector<int64_t>> groups) {
    std::vector<int64_t> ends;
    for (const auto& group : groups) ends.push_back(static_cast<int64_t>(group.size()));
    return assign(std::vector<int64_t>(candidates.size(), 1), ends, [=](size_t group, int64_t place, size_t candidate) {
      return groups[group][static_cast<size_t>(place)] == candidates[candidate];
    });
  };
  EXPECT_EQ(by_size({28, 20, 5, 5, 20, 4}, {{28, 20, 20}, {5, 5, 4}}).groups, (std::vector<int>{0, 0, 1, 1, 0, 1}));
  EXPECT_EQ(by_size({28, 20, 15, 4}, {{28, 20}, {4}}).groups, (std::vector<int>{0, 0, -1, 1})) << "one is left over";
  EXPECT_TRUE(by_size({20, 20}, {{20}, {20}}).ambiguous);
  EXPECT_TRUE(by_size({5, 5, 5}, {{5, 5}}).ambiguous) << "any of the three may be left over";
  EXPECT_FALSE(by_size({5, 4}, {{4, 5}}).groups) << "a group keeps the model's order";
  EXPECT_FALSE(by_size({5, 4}, {{4, 5}}).ambiguous);
  const auto alike = [](size_t count) { return std::vector<int64_t>(count, 7); };
  EXPECT_EQ(by_size(alike(100'000), {alike(100'000)}).groups, std::vector<int>(100'000, 0))
      << "more than a stack has room for calls";
  EXPECT_TRUE(by_size(alike(3000), {alike(1500)}).ambiguous) << "too many ways to try them all";
}

}  // namespace
}  // namespace gannet::convert
