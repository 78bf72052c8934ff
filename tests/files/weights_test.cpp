// PyTorch's files where a program or a person names them: load_weights, and `gannet checkpoint import, export, show`.
#include <ATen/ATen.h>
#include <gannet/checkpoint.h>
#include <gannet/log.h>
#include <torch/nn/module.h>

#include "checkpoint/checkpoint.h"
#include "files/pt_file.h"
#include "files/pt_writer.h"
#include "files/support.h"

namespace gannet::files {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct TwoTensors : torch::nn::Module {
  TwoTensors() {
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
    TwoTensors net;
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
  TwoTensors net;
  EXPECT_THAT(error_of(ErrorCode::kArgument, [&] { load_weights(net, data("deepspeed.pt")); }),
              HasSubstr("deepspeed.pt holds no weights"));
  EXPECT_THAT(error_of(ErrorCode::kMismatch, [&] { load_weights(net, write("other.pt", "weights")); }),
              HasSubstr("missing in it: a"));
}

TEST_F(Weights, what_does_not_fit_is_named) {
  TwoTensors net;
  EXPECT_THAT(error_of(ErrorCode::kMismatch, [&] { load_weights(net, data("nested_protocol2.pt")); }),
              AllOf(HasSubstr("missing in it: a"), HasSubstr("unexpected in it: lm_head.weight")));
  EXPECT_THAT(error_of(ErrorCode::kArgument, [&] { load_weights(net, data("refused_system.pt")); }), HasSubstr("posix.system"));
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

TEST_F(Weights, one_import_takes_every_layout_of_weights) {
  const NamedTensors tensors = {{"a", a_}, {"b", b_}}, first = {{"a", a_}}, second = {{"b", b_}};
  fs::create_directories(root_ / "whole");
  save_safetensors(file("whole/model.safetensors"), tensors, {});
  save_safetensors(file("named.bin"), tensors, {});  // what it is, its content says
  for (const std::string folder : {"shards", "indexed", "bins"}) fs::create_directories(root_ / folder);
  for (const std::string folder : {"shards", "indexed"}) {
    save_safetensors(file(folder + "/model-00001-of-00002.safetensors"), first, {});
    save_safetensors(file(folder + "/model-00002-of-00002.safetensors"), second, {});
  }
  write_text(file("indexed/model.safetensors.index.json"),
             R"({"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}})");
  save_pt(file("bins/pytorch_model-00001-of-00002.bin"), first);
  save_pt(file("bins/pytorch_model-00002-of-00002.bin"), second);
  write_text(file("bins/pytorch_model.bin.index.json"),
             R"({"weight_map": {"a": "pytorch_model-00001-of-00002.bin", "b": "pytorch_model-00002-of-00002.bin"}})");
  for (const std::string from : {"whole", "whole/model.safetensors", "named.bin", "shards", "indexed",
                                 "indexed/model.safetensors.index.json", "bins", "bins/pytorch_model.bin.index.json"}) {
    SCOPED_TRACE(from);
    fs::remove_all(root_ / "out");
    const auto [code, text] = gannet("import " + file(from) + " " + file("out"));
    EXPECT_EQ(code, 0) << text;
    EXPECT_THAT(text, HasSubstr("taken: 2 tensors"));
    expect_loaded(file("out"));
  }
  const auto [one, of_two] = gannet("import " + file("shards/model-00001-of-00002.safetensors") + " " + file("out2"));
  EXPECT_EQ(one, 2);
  EXPECT_THAT(of_two, HasSubstr("is one of 2 shards of a model"));
  fs::remove(file("shards/model-00002-of-00002.safetensors"));
  const auto [missing, names] = gannet("import " + file("shards") + " " + file("out2"));
  EXPECT_EQ(missing, 2);
  EXPECT_THAT(names, HasSubstr("model-00002-of-00002.safetensors is missing, one of 2 shards"));
  fs::copy(file("shards/model-00001-of-00002.safetensors"), file("shards/model-00003-of-00002.safetensors"));
  EXPECT_THAT(gannet("import " + file("shards") + " " + file("out2")).second, HasSubstr("has a shard 3 of 2"));
  write_text(file("indexed/model.safetensors.index.json"), R"({"weight_map": {"c": "model-00001-of-00002.safetensors"}})");
  const auto [wrong, index] = gannet("import " + file("indexed") + " " + file("out2"));
  EXPECT_EQ(wrong, 3);
  EXPECT_THAT(index, HasSubstr("says that 'c' is in"));
  EXPECT_FALSE(fs::exists(root_ / "out2"));
}

TEST_F(Weights, an_export_to_a_files_name_is_that_file) {
  checkpoint::Content content{.tag = "step7"};
  content.slices = {{"parameter/a", {2, 3}, 0, a_}, {"buffer/0/b", {4}, 0, b_}};
  checkpoint::Saver(file("run"), {}).save(content, {});
  for (const std::string name : {"B.bin", "B.safetensors", "made/B.pt"}) {
    const auto [code, text] = gannet("export --max-shard-size 30 " + file("run") + " " + file(name));
    EXPECT_EQ(code, 0) << text;
    EXPECT_EQ(text, "2 tensors of " + file("run") + "/step7, 40 bytes, are in " + file(name) + "\n");
    EXPECT_TRUE(fs::is_regular_file(file(name)));
    expect_loaded(file(name));
    const auto [again, there] = gannet("export " + file("run") + " " + file(name));
    EXPECT_EQ(again, 2);
    EXPECT_THAT(there, HasSubstr("is there already"));
  }
  const auto [code, text] = gannet("export --format safetensors " + file("run") + " " + file("C.bin"));
  EXPECT_EQ(code, 2);
  EXPECT_THAT(text, HasSubstr("contradict each other"));
}

TEST_F(Weights, deepspeeds_folder_is_exported_in_one_command) {
  const std::string run = std::string(GANNET_SOURCE_DIR) + "/tests/convert/deepspeed/s2-fp32-r2";
  const auto [code, text] = gannet("export " + run + " " + file("x.bin"));
  EXPECT_EQ(code, 0) << text;
  EXPECT_THAT(text, HasSubstr("11 tensors of " + run + "/step4"));
  const PtFile exported = PtFile::open(file("x.bin"));
  const Object *head = exported.root().find("head.weight"), *embed = exported.root().find("embed.weight");
  ASSERT_TRUE(head && embed);
  EXPECT_EQ(head->tensor.storage, embed->tensor.storage) << "tied ones are stored once, under both names";
  const auto command = [&](const std::string& arguments) {
    const std::string line = std::string(GANNET_BINARY_DIR) + "/bin/gannet zero_to_fp32 " + arguments + " 2>&1";
    FILE* pipe = ::popen(line.c_str(), "r");
    std::string output(4096, '\0');
    output.resize(std::fread(output.data(), 1, output.size(), pipe));
    return std::pair(WEXITSTATUS(::pclose(pipe)), output);
  };
  EXPECT_EQ(command(run + " " + file("pytorch_model.bin")).first, 0);
  EXPECT_EQ(read_text(file("pytorch_model.bin")), read_text(file("x.bin")));
  const auto [folder, files] = command(run + " " + file("hf") + " --exclude_frozen_parameters -t step4");
  EXPECT_EQ(folder, 0) << files;
  EXPECT_THAT(files, AllOf(HasSubstr("9 tensors"), HasSubstr("  pytorch_model.bin"), HasSubstr("2 frozen parameters: excluded")));
  const auto [safe, left_out] = command(run + " " + file("safe") + " --safe_serialization");
  EXPECT_EQ(safe, 0) << left_out;
  EXPECT_THAT(left_out, AllOf(HasSubstr("model.safetensors"), HasSubstr("left out: head.weight: another name of embed.weight")));
  checkpoint::Content content{.tag = "t"};  // and Gannet's own
  content.slices = {{"parameter/a", {2, 3}, 0, a_.to(at::kBFloat16)}, {"parameter/b", {4}, 0, b_}};
  checkpoint::Saver(file("own"), {}).save(content, {});
  EXPECT_EQ(command(file("own") + " " + file("own.bin")).first, 0);
  const PtFile own = PtFile::open(file("own.bin"));
  EXPECT_EQ(own.root().find("a")->tensor.dtype, at::kFloat);
  EXPECT_EQ(command(file("nowhere") + " " + file("n.bin")).first, 2);
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
  TwoTensors net;
  error_of(ErrorCode::kNotFound, [&] { load_weights(net, file("many")); });
  EXPECT_EQ(gannet("export --format pt " + file("run") + " " + file("one")).first, 2);  // it holds a model already
}

TEST_F(Weights, a_shard_is_a_file_of_the_same_folder) {
  write("pytorch_model-00001-of-00001.bin", "");
  TwoTensors net;
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
  const auto [shown, record] = gannet("show " + data("refused_eval.pt"));
  EXPECT_EQ(shown, 0);
  EXPECT_THAT(record, HasSubstr("  value: builtins.eval ('1')\n"));
}

}  // namespace
}  // namespace gannet::files
