// Inputs that are not a model, or not in one of Gannet's formats: every reader names their actual
// type and the next step.
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gannet/checkpoint.h>
#include <gannet/model_config.h>
#include <torch/nn/module.h>

#include <functional>

#include "base/first_bytes.h"
#include "checkpoint/checkpoint.h"
#include "convert/import_weights.h"
#include "files/known_folder.h"
#include "files/names.h"
#include "files/pt_file.h"
#include "files/pt_writer.h"
#include "files/support.h"
#include "files/weight_files.h"

namespace gannet::files {
namespace {

using namespace std::string_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

struct NamedNet : torch::nn::Module {
  NamedNet() {
    a = register_module("a", std::make_shared<torch::nn::Module>())->register_parameter("weight", at::zeros({2, 3}));
    b = register_module("b", std::make_shared<torch::nn::Module>())->register_parameter("weight", at::zeros({4}));
  }
  torch::Tensor a, b;
};

class Foreign : public FolderTest {
 protected:
  // As the command `gannet checkpoint show` or `import` says it.
  std::string command(const std::string& arguments) {
    const std::string line = std::string(GANNET_BINARY_DIR) + "/bin/gannet checkpoint " + arguments + " 2>&1";
    FILE* pipe = ::popen(line.c_str(), "r");
    std::string text;
    char buffer[4096];
    while (const size_t size = std::fread(buffer, 1, sizeof(buffer), pipe)) text.append(buffer, size);
    code_ = WEXITSTATUS(::pclose(pipe));
    return text;
  }
  int code_ = 0;
};

const std::string kPointer =
    "version https://git-lfs.github.com/spec/v1\noid sha256:8d25d1f104be517b09152d6398a7352a8db4956f956565ec2ed8af58feba7a81\n"
    "size 548118077\n";

TEST_F(Foreign, a_file_is_named_by_its_first_bytes_whatever_its_name) {
  const std::pair<std::string, std::string> kinds[] = {
      {kPointer, "is a Git LFS pointer, to a file of 548 MB that was not fetched"},
      {"<!DOCTYPE html><html><body>Sign in</body></html>", "is a web page"},
      {"\n  <HTML>", "is a web page"},
      {"<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>", "is a web page"},
      {"\x1f\x8b\x08"s + std::string(20, '\0'), "is compressed with gzip"},
      {"\x28\xb5\x2f\xfd"s + std::string(20, 'x'), "is compressed with zstd"},
      {"GGUF\3\0\0\0"s + std::string(20, 'x'), "is a GGUF file"},
      {"\x93NUMPY\1\0"s + std::string(20, 'x'), "is a NumPy array"},
      {std::string(257, 'x') + "ustar\0"s, "is a tar archive"},
      {"{\"hidden_size\": 4}", "is a JSON text"},
      {"compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\n", "is a YAML text"},
      {"", "is empty, of 0 bytes"},
  };
  NamedNet net;
  for (const auto& [bytes, what] : kinds) {
    SCOPED_TRACE(what);
    const ErrorCode code = bytes.empty() ? ErrorCode::kCorrupt : ErrorCode::kUnsupported;
    for (const std::string name : {"model.safetensors", "pytorch_model.bin", "weights"}) {
      fs::remove_all(root_);
      fs::create_directories(root_);
      write_text(file(name), bytes);
      EXPECT_THAT(error_of(code, [&] { load_weights(net, file(name)); }), AllOf(HasSubstr(file(name)), HasSubstr(what)));
      EXPECT_THAT(error_of(code, [&] { open_weight_files(file(name)); }), HasSubstr(what));
      if (name != "weights") EXPECT_THAT(error_of(code, [&] { load_weights(net, root_.string()); }), HasSubstr(what));
    }
  }
  write_text(file("model.safetensors"), kPointer);
  for (const std::string command_line : {"show " + file("model.safetensors"), "import " + root_.string() + " " + file("out")})
    EXPECT_THAT(command(command_line), AllOf(HasSubstr("548 MB"), HasSubstr("git lfs pull"))) << command_line;
  EXPECT_EQ(code_, 2);
}

TEST_F(Foreign, texts_that_are_pointers_are_named_too) {
  write_text(file("config.json"), kPointer);
  EXPECT_THAT(error_of(ErrorCode::kUnsupported, [&] { ModelConfig::read(root_.string()); }), HasSubstr("Git LFS pointer"));
  write_text(file("model.safetensors.index.json"), kPointer);
  EXPECT_THAT(error_of(ErrorCode::kUnsupported, [&] { open_weight_files(root_.string()); }), HasSubstr("Git LFS pointer"));
}

TEST(FirstBytes, take_what_a_reader_takes_and_leave_the_unknown_to_it) {
  EXPECT_EQ(recognized("PK\3\4....", 100).format, Format::kZip);
  EXPECT_EQ(recognized("\x80\x02}.", 100).format, Format::kPickle);
  EXPECT_EQ(recognized("\x02\0\0\0\0\0\0\0{}"s, 10).format, Format::kSafetensors);
  EXPECT_EQ(recognized("no key here: really not\n", 24).format, Format::kText);
  EXPECT_EQ(recognized("no key here: really not\n", 1000).format, Format::kUnknown) << "the head of a longer one";
  for (const std::string yaml :
       {"# a comment\n\n# and one more\nkey: 1\n", "---\r\nkey: 1\r\n", "key: a line without an end", "key:"})
    EXPECT_EQ(recognized(yaml, yaml.size()).format, Format::kYaml) << yaml;
  for (const std::string& other : {"1: 2\n"s, "step4\n"s, "key:\1"s, "{\0\0\0\0\0\0\0"s})
    EXPECT_EQ(recognized(other, other.size()).format, Format::kUnknown) << other;
  for (const std::string text : {"# a comment alone", "-----BEGIN CERTIFICATE-----\n", "Entry not found"})
    EXPECT_EQ(recognized(text, text.size()).format, Format::kText) << text;
  require_format("PK\3\4", 4, "x", {Format::kZip});
  EXPECT_THAT(recognized("version https://git-lfs.github.com/spec/v1\n", 42).what, HasSubstr("Git LFS pointer"));
}

TEST_F(Foreign, a_type_that_safetensors_have_and_gannet_has_not_is_unsupported) {
  for (const std::string dtype : {"F8_E4M3", "F8_E5M2", "U16", "F4"}) {
    const std::string json = R"({"w":{"dtype":")" + dtype + R"(","shape":[2],"data_offsets":[0,2]}})";
    write_text(file("x.safetensors"), le<uint64_t>(json.size()) + json + "ab");
    NamedNet net;
    EXPECT_THAT(
        error_of(ErrorCode::kUnsupported, [&] { load_weights(net, file("x.safetensors")); }),
        AllOf(HasSubstr("tensor 'w' has dtype " + dtype), HasSubstr(dtype[0] == 'F' ? "dequantise first" : "convert it")));
    EXPECT_THAT(command("show " + file("x.safetensors")), HasSubstr(dtype));
    EXPECT_EQ(code_, 2);
  }
}

TEST_F(Foreign, folders_of_other_programs_are_named_with_the_next_step) {
  struct Case {
    std::vector<std::string> entries;  // a folder's name ends in '/'
    std::string what, next;
  };
  const Case cases[] = {
      {{"adapter_config.json", "adapter_model.safetensors"}, "a PEFT adapter (adapter_config.json)", "merge it first"},
      {{"checkpoint-4/", "checkpoint-10/", "runs/"}, "an output folder of a Trainer", "/checkpoint-10"},
      {{"checkpoint-4/", "config.json"}, "an output folder of a Trainer", "/checkpoint-4"},
      {{"blobs/", "refs/", "snapshots/", "snapshots/0a1b/"}, "a model in Hugging Face's cache", "/snapshots/0a1b"},
      {{".metadata", "__0_0.distcp"}, "torch.distributed.checkpoint", "dcp_to_torch"},
      {{"pytorch_model_fsdp_0/"}, "a checkpoint of FSDP", "accelerate merge-weights"},
      {{"latest_checkpointed_iteration.txt", "iter_0000010/"}, "a checkpoint of Megatron-LM", "tools/checkpoint/convert.py"},
      {{"random_states_0.pkl", "optimizer.bin"}, "accelerate's save_state", "save_model"},
      {{"model_index.json"}, "a pipeline of diffusers", "give the folder of one"},
      {{"trainer_state.json", "rng_state.pth"}, "a checkpoint of transformers' Trainer without weights", "give the folder"},
  };
  NamedNet net;
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    fs::remove_all(root_);
    fs::create_directories(root_ / "given");
    for (const std::string& entry : one.entries)
      if (entry.ends_with('/'))
        fs::create_directories(root_ / "given" / entry);
      else
        write_text(file("given/" + entry), "{}");
    const auto says = [&](const std::string& text) { EXPECT_THAT(text, AllOf(HasSubstr(one.what), HasSubstr(one.next))); };
    const std::string given = file("given");
    for (const auto& read : std::vector<std::function<void()>>{
             [&] { load_weights(net, given); }, [&] { open_weight_files(given); }, [&] { checkpoint::open(given, {}); }}) {
      try {
        read();
        ADD_FAILURE() << "it was read";
      } catch (const Error& error) {
        says(error.what());
      }
    }
    for (const std::string line :
         {"import " + given + " " + file("out"), "show " + given, "export " + given + " " + file("x.bin")})
      says(command(line));
  }
}

// The command of the next step is the one that works: it is run as it is printed.
TEST_F(Foreign, the_trainers_own_checkpoint_without_weights_is_exported_as_its_error_says) {
  save_safetensors(file("w.safetensors"), {{"a.weight", at::zeros({2, 3})}});
  EXPECT_EQ((command("import " + file("w.safetensors") + " " + file("run")), code_), 0);
  std::string tag;
  for (const auto& entry : fs::directory_iterator(root_ / "run"))
    if (entry.is_directory()) tag = entry.path().filename();
  const std::string checkpoint = file("run/" + tag);
  write_text(checkpoint + "/trainer_state.json", "{}");
  std::string said;
  try {
    open_weight_files(checkpoint);
  } catch (const Error& error) {
    said = error.next_step();
  }
  const std::string begin = "`gannet checkpoint ";
  ASSERT_THAT(said, testing::StartsWith(begin));
  std::string line = said.substr(begin.size(), said.find('`', 1) - begin.size());
  line.replace(line.find(" OUT "), 5, " " + file("out") + " ");
  EXPECT_EQ((command(line), code_), 0) << line;
  EXPECT_TRUE(fs::exists(root_ / "out/model.safetensors"));
}

TEST_F(Foreign, what_lies_beside_weights_is_in_the_receipt) {
  save_pt(file("pytorch_model.bin"), {{"a.weight", at::zeros({2, 3})}});
  for (const char* name : {"optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"}) write_text(file(name), "x");
  EXPECT_THAT(convert::import_weights(root_.string(), file("out"), {}).to_string(),
              HasSubstr("not taken: optimizer.pt, rng_state.pth, scheduler.pt, trainer_state.json"));
  EXPECT_THAT(command("show " + root_.string()), HasSubstr("optimizer.pt, rng_state.pth, scheduler.pt, trainer_state.json: the "
                                                           "training state of another program, which"));
}

TEST_F(Foreign, every_reader_of_weights_takes_the_same_layouts_and_refuses_the_same_faults) {
  const at::Tensor a = at::full({2, 3}, 1.0), b = at::full({4}, 2.0);
  const auto loads = [&](const std::string& path) {
    NamedNet net;
    EXPECT_EQ(load_weights(net, path), 2) << path;
    EXPECT_TRUE(net.named_parameters()["a.weight"].equal(a) && net.named_parameters()["b.weight"].equal(b)) << path;
  };
  save_safetensors(file("model-00001-of-00002.safetensors"), {{"a.weight", a}});
  save_safetensors(file("model-00002-of-00002.safetensors"), {{"b.weight", b}});
  loads(root_.string());
  write_text(
      file("model.safetensors.index.json"),
      R"({"weight_map": {"a.weight": "model-00001-of-00002.safetensors", "b.weight": "model-00002-of-00002.safetensors"}})");
  loads(root_.string());
  loads(file("model.safetensors.index.json"));
  save_safetensors(file("model-00002-of-00002.safetensors"), {{"a.weight", a}, {"b.weight", b}});
  NamedNet net;
  EXPECT_THAT(error_of(ErrorCode::kCorrupt, [&] { load_weights(net, root_.string()); }),
              HasSubstr("which another shard has too"));
  write_text(file("model.safetensors.index.json"), R"({"weight_map": {}})");
  EXPECT_THAT(error_of(ErrorCode::kCorrupt, [&] { open_weight_files(root_.string()); }), HasSubstr("lists no tensor"));
  save_pt(file("model.safetensors"), {{"a.weight", a}, {"b.weight", b}});
  loads(root_.string());
}

TEST_F(Foreign, numbers_of_another_kind_are_never_cast) {
  for (const at::ScalarType dtype : {at::kChar, at::kFloat8_e4m3fn, at::kComplexFloat}) {
    save_pt(file("x.bin"), {{"a.weight", at::zeros({2, 3}).to(dtype)}, {"b.weight", at::zeros({4})}});
    NamedNet net;
    for (const bool strict : {true, false})
      EXPECT_THAT(error_of(ErrorCode::kMismatch, [&] { load_weights(net, file("x.bin"), {.strict = strict}); }),
                  AllOf(HasSubstr("other kinds of numbers there than here: a.weight"), HasSubstr("quantized")));
  }
}

TEST_F(Foreign, weights_and_checkpoints_of_others_are_named_where_a_checkpoint_is_opened) {
  save_safetensors(file("model.safetensors"), {{"a.weight", at::zeros({2, 3})}});
  EXPECT_THAT(error_of(ErrorCode::kNotFound, [&] { checkpoint::open(root_.string(), {}); }),
              HasSubstr("holds a model's weights"));
  fs::remove(file("model.safetensors"));
  fs::create_symlink("../blobs/none", file("model.safetensors"));
  EXPECT_THAT(error_of(ErrorCode::kNotFound, [&] { open_weight_files(root_.string()); }),
              HasSubstr("is a link to a file that is not"));
  fs::remove(file("model.safetensors"));
  write_text(file("mp_rank_00_model_states.pt"), "x");
  EXPECT_THAT(error_of(ErrorCode::kNotFound, [&] { checkpoint::open(root_.string(), {}); }),
              HasSubstr("gannet checkpoint import"));
  write_text(file("pytorch_model.bin"), "Invalid username or password.");
  EXPECT_THAT(error_of(ErrorCode::kUnsupported, [&] { open_weight_files(root_.string()); }),
              AllOf(HasSubstr("\"Invalid username or password.\""), HasSubstr("fetch the file again")));
}

TEST_F(Foreign, a_prefix_that_would_fit_all_names_is_said) {
  EXPECT_EQ(rename_that_fits({"module.a.w", "module.b.w", "step"}, {"a.w", "b.w"}), "module.=");
  EXPECT_EQ(rename_that_fits({"a.w", "b.w"}, {"model.a.w", "model.b.w", "head"}), "=model.");
  EXPECT_EQ(rename_that_fits({"module._orig_mod.a.w", "module._orig_mod.b.w"}, {"a.w", "b.w"}), "module._orig_mod.=");
  EXPECT_EQ(rename_that_fits({"module.a.w", "other.b.w"}, {"a.w", "b.w"}), "");
  EXPECT_EQ(rename_that_fits({"x.w"}, {}), "");
  std::vector<std::string> in_file, in_model{"a.head.w"};  // one name in eleven is only in the model
  for (int i = 0; i < 10; ++i) in_model.push_back(in_file.emplace_back("a." + std::to_string(i) + ".w").substr(2));
  EXPECT_EQ(rename_that_fits(in_file, in_model), "a.=");
  in_model.push_back("b.head.w");
  EXPECT_EQ(rename_that_fits(in_file, in_model), "") << "10 of 12";
  NamedNet net;
  for (const std::string prefix : {"module.", "_orig_mod.", "model."}) {
    save_pt(file("x.bin"), {{prefix + "a.weight", at::zeros({2, 3})}, {prefix + "b.weight", at::zeros({4})}});
    EXPECT_THAT(error_of(ErrorCode::kMismatch, [&] { load_weights(net, file("x.bin")); }),
                AllOf(HasSubstr("missing in it: a.weight, b.weight"), HasSubstr("unexpected in it: " + prefix + "a.weight"),
                      HasSubstr("--rename " + prefix + "=")));
    fs::remove_all(file("out"));
    command("import " + file("x.bin") + " " + file("out") + " --rename " + prefix + "=");
    EXPECT_EQ(load_weights(net, file("out")), 2);
  }
}

TEST_F(Foreign, show_takes_every_format_that_import_takes) {
  const NamedTensors tensors = {{"a.weight", at::zeros({2, 3})}};
  save_safetensors(file("model.safetensors"), tensors, {});
  for (const std::string path : {file("model.safetensors"), root_.string()})
    EXPECT_THAT(command("show " + path), AllOf(HasSubstr("1 tensors"), HasSubstr("a.weight"), HasSubstr("[2, 3]"))) << path;
  EXPECT_EQ(code_, 0);
  const std::string run = std::string(GANNET_SOURCE_DIR) + "/tests/convert/deepspeed/s2-fp32-r2";
  EXPECT_THAT(command("show " + run),
              AllOf(HasSubstr("DeepSpeed's, 10 tensors"), HasSubstr("first.weight"), HasSubstr("another name")));
}

TEST_F(Foreign, an_import_of_a_quantised_folder_says_what_its_tensors_are) {
  save_safetensors(file("model.safetensors"), {{"a.qweight", at::zeros({2, 3}, at::kInt)}}, {});
  write_text(file("config.json"), R"({"model_type": "llama", "quantization_config": {"quant_method": "gptq", "bits": 4}})");
  EXPECT_THAT(command("import " + root_.string() + " " + file("out")),
              AllOf(HasSubstr("not taken: the quantization_config of "), HasSubstr("codes and scales")));
  EXPECT_EQ(code_, 0);
}

TEST_F(Foreign, a_shard_that_is_missing_is_named_with_the_index_that_lists_it) {
  save_safetensors(file("model-00001-of-00002.safetensors"), {{"a.weight", at::zeros({2, 3})}}, {});
  write_text(file("model.safetensors.index.json"), R"({"weight_map": {"a.weight": "model-00001-of-00002.safetensors",
                                                                 "b.weight": "model-00002-of-00002.safetensors"}})");
  NamedNet net;
  EXPECT_THAT(error_of(ErrorCode::kNotFound, [&] { load_weights(net, root_.string()); }),
              HasSubstr("model-00002-of-00002.safetensors is missing, which " + file("model.safetensors.index.json") + " lists"));
}

// Folders of other programs next to the tags of a run, and a cloned run with pointers in place of
// its large files.
TEST_F(Foreign, a_run_with_other_programs_folders_and_with_pointers_is_read_as_what_it_is) {
  save_safetensors(file("x.safetensors"), {{"a.weight", at::zeros({64, 3})}}, {});
  command("import " + file("x.safetensors") + " " + file("run"));
  fs::create_directories(file("run/web"));
  write_text(file("run/web/manifest.json"), R"({"name": "A page", "icons": []})");
  EXPECT_THAT(command("show " + file("run")), AllOf(HasSubstr("a.weight"), Not(HasSubstr("web"))));
  EXPECT_EQ(code_, 0);
  for (const auto& entry : fs::recursive_directory_iterator(file("run")))
    if (entry.path().extension() == ".safetensors") write_text(entry.path().string(), kPointer);
  EXPECT_THAT(command("show " + file("run")), AllOf(HasSubstr("is a Git LFS pointer"), HasSubstr("git lfs pull")));
}

}  // namespace
}  // namespace gannet::files
