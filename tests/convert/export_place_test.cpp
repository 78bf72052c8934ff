// The folder that an import or an export writes into.
#include "convert/exported_folders.h"
#include "convert/import_weights.h"
#include "convert/staged_folder.h"

namespace gannet::convert {
namespace {

using testing::HasSubstr;

// Two processes with one id, as containers have, are two objects in this one.
TEST_F(ToDeepSpeed, TwoExportsWithOneProcessIdShareNoFolder) {
  {
    StagedFolder one(file("out"), "step4"), two(file("out"), "step4");
    EXPECT_NE(one.path(), two.path());
    write_text(one.path() + "/of one", "");
    write_text(two.path() + "/of two", "");
    one.commit("latest");
    EXPECT_THAT(error_of(ErrorCode::kArgument, [&] { two.commit("latest"); }), HasSubstr("has a 'step4' already"));
  }
  std::set<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(root_ / "out")) names.insert(fs::relative(entry, root_ / "out"));
  EXPECT_EQ(names, (std::set<std::string>{"latest", "step4", "step4/of one"}));
  EXPECT_EQ(read_text(file("out/latest")), "step4");
}

TEST_F(ToDeepSpeed, AnInterruptedExportIsNamedAndNotTakenOver) {
  const auto opened = imported(deepspeeds("s2-fp32-r2"), "in");
  const std::string left = file("out/.step4.tmp-" + std::to_string(::getpid()));
  fs::create_directories(left);
  write_text(left + "/zero_pp_rank_7_mp_rank_00_optim_states.pt", "");
  const ToDeepSpeedReceipt receipt = write_deepspeed(opened, file("out"), {2, 1, 0}, {});
  EXPECT_FALSE(fs::exists(root_ / "out/step4/zero_pp_rank_7_mp_rank_00_optim_states.pt"));
  EXPECT_TRUE(fs::exists(left)) << "its process may still write";
  EXPECT_THAT(receipt.to_string(), HasSubstr("note: " + left + " is from an export that was interrupted or still runs"));
}

TEST_F(ToDeepSpeed, TheFolderToWriteIntoIsNeitherUnnamedNorOfTheOtherKind) {
  const std::string theirs = file("theirs"), ours = file("ours");
  fs::copy(deepspeeds("s2-fp32-r2"), theirs, fs::copy_options::recursive);
  const auto opened = imported(deepspeeds("s3-fp32-r2"), "ours");
  fs::rename(theirs + "/step4", theirs + "/step8");
  write_text(theirs + "/latest", "step8");
  write_text(file("file"), "");
  fs::create_symlink("nowhere", file("dangling"));
  checkpoint::export_file(checkpoint::export_source(opened, false), file("w.safetensors"),
                          {.format = checkpoint::safetensors_format()});
  const std::string latest = read_text(ours + "/latest");
  const auto refused = [&](const std::string& out, const std::string& text, const std::function<void()>& write) {
    EXPECT_THAT(error_of(ErrorCode::kArgument, write), HasSubstr(text)) << out;
  };
  for (const auto& [out, text] :
       {std::pair(std::string(), "the name of the folder to write into is empty"), std::pair(file("file"), "file is a file"),
        std::pair(file("file/x/y"), "file is a file"), std::pair(file("dangling"), "dangling is a dangling link"),
        std::pair(theirs, "holds checkpoints of DeepSpeed"), std::pair(ours, "holds checkpoints of Gannet")}) {
    if (out != ours) {
      refused(out, text, [&] { import_deepspeed(deepspeeds("s3-fp32-r2"), out, {}); });
      refused(out, text, [&] { import_weights(file("w.safetensors"), out, {}); });
    }
    if (out == theirs) continue;
    refused(out, text, [&] { StagedFolder(out, "step8").commit("latest"); });
    refused(out, text, [&] { write_universal(opened, out, {}); });
  }
  import_weights(file("w.safetensors"), file("weights"), {});
  refused(file("weights"), "has a 'weights' already\n  (name a folder that has none, or another --tag)",
          [&] { import_weights(file("w.safetensors"), file("weights"), {}); });
  EXPECT_EQ(read_text(theirs + "/latest"), "step8");
  EXPECT_EQ(read_text(ours + "/latest"), latest);
  EXPECT_FALSE(fs::exists("/step4") || fs::exists("/step4_universal"));
}

}  // namespace
}  // namespace gannet::convert
