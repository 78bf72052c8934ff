// Shared by the tests of monitors over real runs.
#pragma once

#include <gannet/log.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "comm/ranks.h"
#include "engine/impl.h"
#include "engine/models.h"

namespace gannet::test {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// The folder of a test, which its ranks share.
inline fs::path folder() {
  const char* name = std::getenv("MONITOR_TEST_FOLDER");
  return name ? name : "monitor_run_" + std::to_string(::getpid());
}
inline std::string at(const std::string& name) { return (folder() / name).string(); }

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::vector<Json> lines_of(const std::string& path, const std::string& kind = "") {
  std::vector<Json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (Json read = Json::parse(line); kind.empty() || read["kind"] == kind) lines.push_back(std::move(read));
  return lines;
}

inline Dict with_metrics(Dict config, const std::string& name = "metrics.jsonl") {
  config["gannet"] = Dict{{"metrics", Dict{{"path", at(name)}}}};
  return config;
}

// Steps of two micro-batches where the config says so; the losses that it saw, a mean for each step.
template <class Model>
std::vector<double> train(Engine<Model>& engine, int64_t steps) {
  std::vector<double> losses;
  for (int64_t step = 0; step < steps; ++step) {
    double mean = 0;
    for (int64_t a = 0; a < engine.gradient_accumulation_steps(); ++a) {
      auto [x, y] = make_batch((engine.micro_steps() * engine.world_size() + engine.rank()), 4);
      const at::Tensor loss = engine.forward(x, y);
      mean += loss.template item<double>() / static_cast<double>(engine.gradient_accumulation_steps());
      engine.backward(loss);
      engine.count("tokens", 10 * (engine.rank() + 1));
      if (engine.rank() == 1 && engine.global_steps() > 0) engine.count("images", 3);  // only this rank has the name, and late
      engine.record("accuracy", 0.5 + static_cast<double>(engine.rank()));
      engine.step();
    }
    losses.push_back(mean);
  }
  return losses;
}

class Runs : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder());
    fs::create_directories(folder());
    set_log_sink(
        [this](LogLevel level, const std::string& line) { (level == LogLevel::kWarning ? warnings_ : notes_).push_back(line); });
  }
  void TearDown() override {
    set_log_sink({});
    fs::remove_all(folder());
  }
  ranks::Options options() const { return {.environment = {{"MONITOR_TEST_FOLDER", fs::absolute(folder()).string()}}}; }
  std::vector<std::string> warnings_, notes_;
};

}  // namespace gannet::test
