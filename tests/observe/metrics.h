// Metrics files for the tests: lines as the engine writes them, in a folder that goes away.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace gannet::test {

inline const char* const kRun =
    R"({"kind": "run", "schema": 1, "gannet": "0.1.0", "started_at": "2026-03-14T09:26:53Z", "world_size": 2, "global_step": 0, "parameters": 124439808,)"
    R"( "train_batch_size": 16, "micro_batch_size": 4, "gradient_accumulation_steps": 2, "zero_stage": 2, "dtype": "fp16",)"
    R"( "config": [{"key": "gradient_clipping", "value": 1.0, "origin": "ds.json:4:3"}, {"key": "fp16.enabled", "value": true, "origin": "default"}],)"
    R"( "plugins": [{"kind": "optimizer", "name": "AdamW", "version": "1.0", "file": "adam.so"}],)"
    R"( "machine": {"host": "loom", "cores": 2, "instruction_sets": ["avx2", "avx512f"], "memory_bytes": 1073741824, "memory_limit_bytes": null}})"
    "\n";

// `more` replaces nothing: members that come behind the usual ones.
inline std::string step_line(int64_t step, const std::string& loss,
                             const std::string& more = R"("applied": true, "reason": "")") {
  return R"({"kind": "step", "step": )" + std::to_string(step) + R"(, "samples": )" + std::to_string(16 * step) +
         R"(, "time": )" + std::to_string(step) + R"(, "loss": )" + loss +
         R"(, "lr": [0.001, 0.001], "grad_norm": 0.5, "loss_scale": 1024, "seconds": 0.5, "phases": {"forward": 0.1, "backward": 0.2},)"
         R"( "counts": {"tokens": 100}, "memory_bytes": 2147483648, "values": {"accuracy": 0.75}, )" +
         more + "}\n";
}

class MetricsFolder : public testing::Test {
 protected:
  MetricsFolder() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              ("gannet-report-" + std::string(test->name()) + "-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  ~MetricsFolder() override { std::filesystem::remove_all(folder_); }

  std::string file(const std::string& name, const std::string& content) const {
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return (folder_ / name).string();
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::filesystem::path folder_;
};

}  // namespace gannet::test
