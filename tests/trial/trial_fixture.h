// The fixture of the tests that run SmallTrial within their process.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "small_trial.h"

namespace trial_test {

using launched::Folder;
using launched::text_of;

class TrialTest : public testing::Test {
 protected:
  void SetUp() override { hooks = {}; }
  void TearDown() override { hooks = {}; }
  static gannet::TrialSettings settings(const Folder& folder, gannet::Dict changes = {}) {
    gannet::Dict hparams = small_hparams();
    for (const auto& [name, value] : changes.entries()) hparams[name] = value;
    gannet::TrialSettings made;
    made.hparams = gannet::Hparams(hparams);
    made.max_length = gannet::TrialLength::batches(6);
    made.output_dir = (folder.path / "out").string();
    return made;
  }
  static std::vector<std::string> lines_of(const Folder& folder) {
    std::vector<std::string> lines;
    std::istringstream in(text_of(folder.path / "out/trial.jsonl"));
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
  static std::vector<std::string> checkpoints_in(const Folder& folder, const std::string& engine = "engine") {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path / "out/checkpoints" / engine))
      if (entry.path().filename().string().starts_with("batch-")) names.push_back(entry.path().filename());
    return names;
  }
};

}  // namespace trial_test
