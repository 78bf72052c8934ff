// `gannet checkpoint` and what it exports.
#include "checkpoint/export.h"

#include <gannet/safetensors.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "checkpoint/support.h"

namespace gannet::checkpoint {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class Export : public CheckpointTest {
 protected:
  void SetUp() override {
    CheckpointTest::SetUp();
    Content content{.tag = "step7"};
    content.slices = {whole("parameter/a", a_),        whole("parameter/b", b_),          whole("buffer/0/mean", mean_),
                      whole("buffer/0/count", count_), whole("buffer/1/mean", mean_ + 1), whole("state/exp_avg/a", a_)};
    content.document = {{"global_steps", 7}};
    Saver(folder(), {}).save(content, {});
  }

  std::string out() const { return (root_ / "out").string(); }

  // Exit code and output of the command.
  std::pair<int, std::string> gannet(const std::string& arguments) const {
    const std::string command = std::string(GANNET_BINARY_DIR) + "/bin/gannet checkpoint " + arguments + " 2>&1";
    FILE* pipe = ::popen(command.c_str(), "r");
    std::string text;
    char buffer[4096];
    while (const size_t size = std::fread(buffer, 1, sizeof(buffer), pipe)) text.append(buffer, size);
    const int status = ::pclose(pipe);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text};
  }

  at::Tensor a_ = at::randn({100, 10}), b_ = at::randn({50}).to(at::kDouble), mean_ = at::randn({3}),
             count_ = at::full({}, 5, at::kLong);
};

TEST_F(Export, one_file_holds_weights_and_buffers_under_their_own_names) {
  const ExportResult exported = export_model(open(folder(), {}), out(), {});
  EXPECT_THAT(exported.files, ElementsAre("model.safetensors"));
  std::map<std::string, std::string> metadata;
  const auto tensors = load_safetensors(out() + "/model.safetensors", &metadata);
  EXPECT_EQ(metadata.at("format"), "pt");
  ASSERT_EQ(tensors.size(), 4u);
  EXPECT_TRUE(at::equal(tensors.at("a"), a_));
  EXPECT_TRUE(at::equal(tensors.at("b"), b_));
  EXPECT_TRUE(at::equal(tensors.at("mean"), mean_));
  EXPECT_TRUE(at::equal(tensors.at("count"), count_));
}

// Containers number their processes alike: this file may be one that another export still writes.
TEST_F(Export, a_staged_file_of_another_process_with_this_id_is_left_alone) {
  fs::create_directories(out());
  const std::string other = out() + "/.model.safetensors.tmp-" + std::to_string(::getpid());
  write_text(other, "half");
  export_model(open(folder(), {}), out(), {});
  EXPECT_EQ(read_text(other), "half");
  EXPECT_EQ(load_safetensors(out() + "/model.safetensors").size(), 4u);
}

TEST_F(Export, an_unnamed_folder_is_refused) {
  EXPECT_THAT(error_of(ErrorCode::kArgument, [&] { export_model(open(folder(), {}), "", {}); }),
              HasSubstr("the name of the folder to write into is empty"));
}

TEST_F(Export, sixteen_bit_rounds_floating_point_alone) {
  export_model(open(folder(), {}), out(), {.dtype = at::kBFloat16});
  const auto tensors = load_safetensors(out() + "/model.safetensors");
  EXPECT_TRUE(at::equal(tensors.at("a"), a_.to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(tensors.at("b"), b_.to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(tensors.at("count"), count_));
}

TEST_F(Export, shards_stay_below_their_size_and_the_index_names_each_tensors) {
  const ExportResult exported = export_model(open(folder(), {}), out(), {.max_shard_bytes = 4000});
  EXPECT_THAT(exported.files, ElementsAre("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                                          "model.safetensors.index.json"));
  const auto index = nlohmann::json::parse(read_text(out() + "/model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 4000 + 400 + 12 + 8);
  EXPECT_EQ(index["weight_map"].size(), 4u);
  for (const auto& [name, file] : index["weight_map"].items())
    EXPECT_EQ(load_safetensors(out() + "/" + file.get<std::string>()).count(name), 1u) << name;
  EXPECT_THAT(error_of(ErrorCode::kArgument, [&] { export_model(open(folder(), {}), out(), {}); }),
              HasSubstr("holds a model already"));
}

TEST_F(Export, damage_stops_it_and_leaves_no_file) {
  const std::string path = file("step7", "rank-00000.safetensors");
  std::string data = read_text(path);
  data[data.size() - 100] ^= 1;
  write_text(path, data);
  EXPECT_THROW(export_model(open(folder(), {}), out(), {}), Error);
  EXPECT_TRUE(fs::is_empty(out()));
}

TEST_F(Export, sizes_are_read_as_people_write_them) {
  EXPECT_EQ(parse_size("5GB"), 5'000'000'000u);
  EXPECT_EQ(parse_size("1.5MiB"), 1'572'864u);
  EXPECT_EQ(parse_size("700"), 700u);
  for (const char* text : {"", "GB", "-1GB", "5XB", "0", "1e40", "nan"}) EXPECT_THROW(parse_size(text), Error) << text;
}

TEST_F(Export, the_command_lists_shows_verifies_and_exports) {
  auto [code, text] = gannet("list " + folder());
  EXPECT_EQ(code, 0) << text;
  EXPECT_THAT(text, AllOf(HasSubstr("step7"), HasSubstr("complete (latest)"), HasSubstr("KiB")));
  std::tie(code, text) = gannet("show " + folder() + " step7");
  EXPECT_EQ(code, 0) << text;
  EXPECT_THAT(text, AllOf(HasSubstr("saved by 1 rank\n"), HasSubstr("global_steps: 7"), HasSubstr("parameter/a"),
                          HasSubstr("[100, 10]")));
  std::tie(code, text) = gannet("show " + folder() + " --json");
  EXPECT_EQ(nlohmann::json::parse(text)["document"]["global_steps"], 7);
  std::tie(code, text) = gannet("verify " + folder());
  EXPECT_EQ(code, 0) << text;
  EXPECT_THAT(text, HasSubstr("step7: complete, 6 tensors"));
  std::tie(code, text) = gannet("export " + folder() + " " + out() + " --tag step7 --dtype fp16 --max-shard-size 1GB");
  EXPECT_EQ(code, 0) << text;
  EXPECT_EQ(load_safetensors(out() + "/model.safetensors").at("a").scalar_type(), at::kHalf);
}

TEST_F(Export, the_command_says_in_a_sentence_what_is_wrong) {
  auto [code, text] = gannet("list " + folder() + "x");
  EXPECT_EQ(code, 2);
  EXPECT_THAT(text, HasSubstr("there is no folder"));
  std::tie(code, text) = gannet("show " + folder() + " step8");
  EXPECT_EQ(code, 2);
  EXPECT_THAT(text, HasSubstr("nearest are step7"));
  std::tie(code, text) = gannet("export " + folder() + " " + out() + " --max-shard-size huge");
  EXPECT_EQ(code, 2);
  EXPECT_THAT(text, HasSubstr("not a size"));
  std::tie(code, text) = gannet("export " + folder() + " " + out() + " --ema");
  EXPECT_EQ(code, 2);
  EXPECT_THAT(text, HasSubstr("has no moving average of the parameters"));
  const std::string path = file("step7", "rank-00000.safetensors");
  std::string data = read_text(path);
  data[data.size() - 1] ^= 1;
  write_text(path, data);
  std::tie(code, text) = gannet("verify " + folder());
  EXPECT_EQ(code, 3);
  EXPECT_THAT(text, AllOf(HasSubstr("step7: rank-00000.safetensors is damaged"), HasSubstr("tensors there: 'parameter/a'")));
  fs::resize_file(path, 10);
  std::tie(code, text) = gannet("list " + folder());
  EXPECT_THAT(text, HasSubstr("BROKEN: rank-00000.safetensors is truncated"));
}

}  // namespace
}  // namespace gannet::checkpoint
