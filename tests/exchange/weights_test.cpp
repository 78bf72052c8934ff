// PyTorch's files where a program or a person names them: load_weights, and `gannet checkpoint import, export, show`.
#include <ATen/ATen.h>
#include <gannet/checkpoint.h>
#include <gannet/log.h>
#include <torch/nn/module.h>

#include "checkpoint/checkpoint.h"
#include "exchange/pt_file.h"
#include "exchange/pt_writer.h"
#include "exchange/support.h"

namespace gannet::exchange {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Net : torch::nn::Module {
  Net() {
    a = register_parameter("a", at::zeros({2, 3}));
    b = register_parameter("b", at::zeros({4}));
  }
  at::Tensor a, b;
};

class Weights : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    set_log_sink([this](LogLevel, const std::string& line) { log_ += line + "\n"; });
  }
  void TearDown() override {
    set_log_sink({});
    FolderTest::TearDown();
  }

  void expect_loaded(const std::string& path) {
    Net net;
    EXPECT_EQ(load_weights(net, path), 2) << path;
    EXPECT_TRUE(at::equal(net.a, a_) && at::equal(net.b, b_)) << path;
  }
  std::string write(const std::string& name, const std::string& under) {
    std::vector<PtEntry> entries = {{{"a"}, at::kFloat, {2, 3}}, {{"b"}, at::kFloat, {4}}};
    if (!under.empty()) {
      for (auto& entry : entries) entry.keys.insert(entry.keys.begin(), under);
      entries.push_back({{"rng_state"}, at::kByte, {5}});
    }
    PtWriter writer(file(name), entries);
    writer.write(a_);
    writer.write(b_);
    if (!under.empty()) writer.write(at::zeros({5}, at::kByte));
    writer.finish();
    return file(name);
  }
  // Exit code and output of the command.
  std::pair<int, std::string> gannet(const std::string& arguments) const {
    FILE* pipe = ::popen((std::string(GANNET_BINARY_DIR) + "/bin/gannet checkpoint " + arguments + " 2>&1").c_str(), "r");
    std::string text;
    char buffer[4096];
    while (const size_t size = std::fread(buffer, 1, sizeof(buffer), pipe)) text.append(buffer, size);
    const int status = ::pclose(pipe);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text};
  }

  std::string log_;
  at::Tensor a_ = at::randn({2, 3}), b_ = at::randn({4});
};

TEST_F(Weights, a_state_dict_is_loaded_by_name) {
  for (const char* name : {"plain.pt", "plain.pth", "pytorch_model.bin"}) expect_loaded(write(name, ""));
  expect_loaded(root_.string());  // the folder with pytorch_model.bin
}

TEST_F(Weights, a_dict_under_a_name_is_found_and_told) {
  for (const std::string under : {"module", "model", "state_dict", "model_state_dict"}) {
    expect_loaded(write("nested.pt", under));
    EXPECT_THAT(log_, HasSubstr("nested.pt, its entry '" + under + "'"));
  }
  Net net;
  EXPECT_THAT(error_of(ErrorCode::kArgument, [&] { load_weights(net, data("deepspeed.pt")); }),
              HasSubstr("deepspeed.pt holds no weights"));
  EXPECT_THAT(error_of(ErrorCode::kMismatch, [&] { load_weights(net, write("other.pt", "weights")); }),
              HasSubstr("missing in it: a"));
}

TEST_F(Weights, what_does_not_fit_is_named) {
  Net net;
  EXPECT_THAT(error_of(ErrorCode::kMismatch, [&] { load_weights(net, data("nested_protocol2.pt")); }),
              AllOf(HasSubstr("missing in it: a"), HasSubstr("unexpected in it: lm_head.weight")));
  EXPECT_THAT(error_of(ErrorCode::kUnsupported, [&] { load_weights(net, data("refused_system.pt")); }),
              HasSubstr("posix.system"));
}

TEST_F(Weights, an_imported_file_is_a_checkpoint_with_its_weights) {
  const auto [code, text] = gannet("import " + write("nested.pt", "module") + " " + file("out"));
  EXPECT_EQ(code, 0) << text;
  EXPECT_THAT(text, AllOf(HasSubstr("its entry 'module'"), HasSubstr("taken: 2 tensors")));
  expect_loaded(file("out"));
  const auto [again, refusal] = gannet("import " + file("nested.pt") + " " + file("out"));
  EXPECT_EQ(again, 2);
  EXPECT_THAT(refusal, HasSubstr("has a 'weights' already"));
  const auto [renamed, listing] = gannet("import --tag v2 --rename b=c.b " + file("nested.pt") + " " + file("out") + " && " +
                                         GANNET_BINARY_DIR + "/bin/gannet checkpoint show " + file("out") + " v2");
  EXPECT_EQ(renamed, 0) << listing;
  EXPECT_THAT(listing, HasSubstr("parameter/c.b"));
}

TEST_F(Weights, an_export_in_shards_is_what_load_weights_reads) {
  checkpoint::Content content{.tag = "step7"};
  content.slices = {{"parameter/a", {2, 3}, 0, a_}, {"buffer/0/b", {4}, 0, b_}, {"state/exp_avg/a", {2, 3}, 0, a_}};
  checkpoint::Saver(file("run"), {}).save(content, {});
  const auto [code, text] = gannet("export --format pt " + file("run") + " " + file("one"));
  EXPECT_EQ(code, 0) << text;
  EXPECT_TRUE(fs::exists(file("one/pytorch_model.bin")));
  expect_loaded(file("one"));
  const auto [sharded, names] = gannet("export --format pt --max-shard-size 30 " + file("run") + " " + file("many"));
  EXPECT_EQ(sharded, 0) << names;
  EXPECT_THAT(names, AllOf(HasSubstr("pytorch_model-00001-of-00002.bin"), HasSubstr("pytorch_model.bin.index.json")));
  expect_loaded(file("many"));
  fs::remove(file("many/pytorch_model-00002-of-00002.bin"));
  Net net;
  error_of(ErrorCode::kNotFound, [&] { load_weights(net, file("many")); });
  EXPECT_EQ(gannet("export --format pt " + file("run") + " " + file("one")).first, 2);  // it holds a model already
}

TEST_F(Weights, a_shard_is_a_file_of_the_same_folder) {
  write("pytorch_model-00001-of-00001.bin", "");
  Net net;
  write_text(file("pytorch_model.bin.index.json"), R"({"weight_map": {"a": "../other.bin"}})");
  EXPECT_THAT(error_of(ErrorCode::kCorrupt, [&] { load_weights(net, root_.string()); }),
              HasSubstr("not a name of a file in the same folder"));
  write_text(file("pytorch_model.bin.index.json"),
             R"({"weight_map": {"a": "pytorch_model-00001-of-00001.bin", "c": "pytorch_model-00001-of-00001.bin"}})");
  EXPECT_THAT(error_of(ErrorCode::kCorrupt, [&] { load_weights(net, root_.string()); }), HasSubstr("says that 'c' is in"));
}

TEST_F(Weights, show_lists_a_file_as_a_tree) {
  const auto [code, text] = gannet("show " + data("nested_protocol2.pt"));
  EXPECT_EQ(code, 0);
  EXPECT_THAT(text,
              AllOf(HasSubstr("    wte.weight: parameter Float [2, 3]\n"), HasSubstr("  epoch: 3\n"),
                    HasSubstr("  many: a list of 1100 (0, 1, 2, 3, 4, 5, 6, 7, ...)\n"), HasSubstr("  dtype: torch.bfloat16\n")));
  const auto [refused, message] = gannet("show " + data("refused_eval.pt"));
  EXPECT_EQ(refused, 2);
  EXPECT_THAT(message, AllOf(HasSubstr("builtins.eval"), HasSubstr("nothing of the file was run")));
}

}  // namespace
}  // namespace gannet::exchange
