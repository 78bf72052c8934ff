// Folders that DeepSpeed 0.19.6 wrote (make_deepspeed_fixtures.py), against what its own accessors said of them.
#include "convert/deepspeed.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/checkpoint.h"
#include "convert/assign.h"
#include "convert/deepspeed_folders.h"
#include "files/pieces.h"
#include "files/support.h"
#include "launched.h"

namespace gannet::convert {
namespace {

using namespace files;

using nlohmann::json;
using testing::HasSubstr;

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
