// Shared by the tests of imports: the folders that DeepSpeed wrote, and copies of them.
#pragma once

#include "checkpoint/checkpoint.h"
#include "convert/deepspeed.h"
#include "files/support.h"

namespace gannet::convert {

using namespace files;

inline std::string fixture(const std::string& name) {
  return std::string(GANNET_SOURCE_DIR) + "/tests/convert/deepspeed/" + name;
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

}  // namespace gannet::convert
