// The files that monitors write, and what happens when they cannot: no engine here.
#include <gannet/log.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <vector>

#include "observe/crc32c.h"
#include "observe/json_line.h"
#include "observe/output.h"
#include "observe/writers.h"

namespace gannet::observe {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Json = nlohmann::json;

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// A folder of the test's own, and what was logged meanwhile.
class Files : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    set_log_sink([this](LogLevel level, const std::string& line) {
      if (level == LogLevel::kWarning)
        warnings_.push_back(line);
      else
        notes_.push_back(line);
    });
  }
  void TearDown() override {
    set_log_sink({});
    fs::remove_all(folder_);
  }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }

  fs::path folder_ = "monitor_files_" + std::to_string(::getpid());
  std::vector<std::string> warnings_, notes_;
};

Step some_step(int64_t number = 1) {
  Step step;
  step.step = number;
  step.samples = 16 * number;
  step.loss = 5.5 / static_cast<double>(number);
  step.lr = {0.25};
  step.next_lr = {0.001};
  step.grad_norm = 1.25;
  step.seconds = 0.5;
  step.phases = {{"forward", 0.2}};
  step.counts = {{"tokens", 4096}};
  step.values = {{"accuracy", 0.75}, {"Eval/top 5", 0.875}};
  return step;
}

// ---- the metrics file

TEST_F(Files, AStepIsOneLineOfJsonWithEveryKeyOfTheSchema) {
  auto file = metrics_file(at("a/b/metrics.jsonl"));
  Step step = some_step();
  step.loss = std::numeric_limits<double>::quiet_NaN();
  step.grad_norm.reset();
  step.values.emplace_back("limit", -std::numeric_limits<double>::infinity());
  file->step(step, 2.5);
  file->event({1, "checkpoint", "saved \xFF/global_step1"}, 3);
  file.reset();
  const auto lines = lines_of(read_file(at("a/b/metrics.jsonl")));
  ASSERT_THAT(lines, SizeIs(2));
  const Json read = Json::parse(lines[0]);
  EXPECT_EQ(
      read,
      Json::parse(
          R"({"kind": "step", "step": 1, "samples": 16, "time": 2.5, "loss": "NaN", "lr": [0.25], "grad_norm": null, "loss_scale": 1.0, "applied": true,
      "reason": "", "seconds": 0.5, "phases": {"forward": 0.2}, "counts": {"tokens": 4096}, "memory_bytes": 0,
      "values": {"accuracy": 0.75, "Eval/top 5": 0.875, "limit": "-Infinity"}})"));
  EXPECT_EQ(
      Json::parse(lines[1]),
      Json::parse(R"({"kind": "event", "step": 1, "time": 3.0, "what": "checkpoint", "text": "saved \ufffd/global_step1"})"));
}

TEST_F(Files, ALineOnDiskIsValidUtf8WhateverItsTextIs) {
  for (const char* bad : {"\xC0\x80", "\xED\xA0\x80", "\xF5\x80\x80\x80", "\xE2\x82", "\x80"})
    EXPECT_NO_THROW(Json::parse(json_line(Value(bad)))) << bad;
  EXPECT_EQ(Json::parse(json_line(Value("\xE2\x82\xAC \xF0\x9F\x90\xA6 \xC3\xA9"))), "\xE2\x82\xAC \xF0\x9F\x90\xA6 \xC3\xA9");
}

// Readers of metrics files compare their lines: the text of a line is part of its format.
TEST(JsonLine, KeepsItsTextFromVersionToVersion) {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<std::pair<Value, std::string>> corpus = {
      {nullptr, "null"},
      {true, "true"},
      {int64_t{-9007199254740993}, "-9007199254740993"},
      {0.0, "0.0"},
      {-0.0, "-0.0"},
      {3.0, "3.0"},
      {0.1, "0.1"},
      {3e-4, "3e-04"},
      {1e5, "1e+05"},
      {5e8, "5e+08"},
      {123456789.0, "123456789.0"},
      {1.0 / 3, "0.3333333333333333"},
      {1.7976931348623157e308, "1.7976931348623157e+308"},
      {5e-324, "5e-324"},
      {List{infinity, -infinity, std::numeric_limits<double>::quiet_NaN()}, R"(["Infinity", "-Infinity", "NaN"])"},
      {"", R"("")"},
      {"a\"b\\c/d\n\t\r", R"("a\"b\\c/d\n\t\r")"},
      {std::string("\0\x01\x1f\x7f", 4), "\"\\u0000\\u0001\\u001f\x7f\""},
      {"\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x90\xA6 </script>", "\"\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x90\xA6 </script>\""},
      {"\xFF|\xC3|", "\"\xEF\xBF\xBD|\xEF\xBF\xBD|\""},
      {Dict{{"zebra", 1}, {"ant", List{1, 2.5, Dict{}}}, {"bee", List{}}}, R"({"zebra": 1, "ant": [1, 2.5, {}], "bee": []})"},
  };
  for (const auto& [value, text] : corpus) EXPECT_EQ(json_line(value), text + "\n");
}

// ---- CSV

TEST_F(Files, CsvFilesAreNamedHeadedAndEndedAsDeepSpeedDoes) {
  {
    auto files = csv_files(at("out/job"));
    files->step(some_step(1), 0);
    files->flush();
    files->step(some_step(2), 0);
  }
  EXPECT_EQ(read_file(at("out/job/Train_Samples_lr.csv")), "step,lr\r\n16,0.001\r\n32,0.001\r\n");
  EXPECT_EQ(read_file(at("out/job/Train_Samples_train_loss.csv")), "step,train_loss\r\n16,5.5\r\n32,2.75\r\n");
  EXPECT_EQ(read_file(at("out/job/Eval_top_5.csv")), "step,top 5\r\n16,0.875\r\n32,0.875\r\n");
  csv_files(at("out/job"))->step(some_step(3), 0);
  EXPECT_EQ(read_file(at("out/job/Train_Samples_lr.csv")), "step,lr\r\n16,0.001\r\n32,0.001\r\n48,0.001\r\n")
      << "one head, however often the run began";
}

// ---- TensorBoard, by a reader that shares nothing with the writer

uint32_t slow_crc32c(const std::string& bytes) {
  uint32_t crc = ~0u;
  for (const unsigned char byte : bytes)
    for (int bit = 0; bit < 8; ++bit) {
      const bool out = ((crc ^ (byte >> bit)) & 1) != 0;
      crc = (crc >> 1) ^ (out ? 0x82F63B78u : 0);
    }
  return ~crc;
}

TEST(Crc32c, TheVectorsOfRfc3720) {
  std::string counting;
  for (char byte = 0; byte < 32; ++byte) counting += byte;
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
  EXPECT_EQ(crc32c(counting), 0x46DD794Eu);
  EXPECT_EQ(crc32c(std::string(counting.rbegin(), counting.rend())), 0x113FDB5Cu);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(slow_crc32c("123456789"), 0xE3069283u) << "the reader's own";
}

template <class Number>
Number number_at(const std::string& bytes, size_t at) {
  Number number;
  std::memcpy(&number, bytes.data() + at, sizeof(number));
  return number;
}

void expect_masked(uint32_t found, const std::string& bytes) {
  const uint32_t crc = slow_crc32c(bytes);
  EXPECT_EQ(found, ((crc >> 15) | (crc << 17)) + 0xA282EAD8u);
}

// Field number -> bytes (or the eight or four of a fixed one); varints as eight bytes.
std::map<int, std::string> fields_of(const std::string& message) {
  std::map<int, std::string> fields;
  size_t at = 0;
  const auto varint = [&] {
    uint64_t number = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(message.at(at++));
      number |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return number;
    }
  };
  while (at < message.size()) {
    const uint64_t tag = varint();
    uint64_t number = 0;
    size_t size = 0;
    switch (tag & 7) {
      case 0:
        number = varint();
        fields[static_cast<int>(tag >> 3)] = std::string(reinterpret_cast<const char*>(&number), 8);
        continue;
      case 1:
        size = 8;
        break;
      case 5:
        size = 4;
        break;
      default:
        size = varint();
    }
    fields[static_cast<int>(tag >> 3)] = message.substr(at, size);
    at += size;
  }
  return fields;
}

struct Scalar {
  std::string tag;
  int64_t step;
  float value;
  bool operator==(const Scalar&) const = default;
};

std::vector<Scalar> read_events(const std::string& path) {
  const std::string bytes = read_file(path);
  std::vector<Scalar> scalars;
  for (size_t at = 0, record = 0; at < bytes.size(); ++record) {
    const auto size = number_at<uint64_t>(bytes, at);
    expect_masked(number_at<uint32_t>(bytes, at + 8), bytes.substr(at, 8));
    const std::string event = bytes.substr(at + 12, size);
    expect_masked(number_at<uint32_t>(bytes, at + 12 + size), event);
    at += 16 + size;
    auto fields = fields_of(event);
    EXPECT_GT(number_at<double>(fields.at(1), 0), 1.7e9) << "seconds since 1970";
    if (record == 0) {
      EXPECT_EQ(fields.at(3), "brain.Event:2");
      continue;
    }
    auto value = fields_of(fields_of(fields.at(5)).at(1));
    scalars.push_back({value.at(1), number_at<int64_t>(fields.at(2), 0), number_at<float>(value.at(2), 0)});
  }
  return scalars;
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> files;
  if (fs::exists(folder))
    for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

TEST_F(Files, TensorBoardsEventsHaveTheTagsAndTheSamplesAsTheirSteps) {
  {
    auto events = tensorboard_events(at("tb/job"));
    Step step = some_step(1);
    step.has_loss_scale = true;
    step.next_loss_scale = 65536;
    step.elapsed = {{"forward", 12.5}};
    events->step(step, 0);
    events->step(some_step(400), 0);
  }
  const auto files = files_in(at("tb/job"));
  ASSERT_THAT(files, SizeIs(1));
  EXPECT_THAT(fs::path(files[0]).filename().string(),
              testing::MatchesRegex("events\\.out\\.tfevents\\.[0-9]{10}\\..+\\.[0-9]+\\.[0-9]+"));
  const auto scalars = read_events(files[0]);
  ASSERT_THAT(scalars, SizeIs(10 + 8));
  EXPECT_THAT(scalars,
              testing::IsSupersetOf(
                  {Scalar{"Train/Samples/train_loss", 16, 5.5f}, Scalar{"Train/Samples/lr", 16, 0.001f},
                   Scalar{"Train/Samples/loss_scale", 16, 65536}, Scalar{"Train/Samples/elapsed_time_ms_forward", 16, 12.5f},
                   Scalar{"Train/Samples/grad_norm", 16, 1.25f}, Scalar{"Train/Samples/tokens_per_second", 16, 8192},
                   Scalar{"Train/Samples/accuracy", 16, 0.75f}, Scalar{"Eval/top_5", 6400, 0.875f}}));
}

// ---- what cannot be written

TEST_F(Files, AFullDiskIsToldOnceAndTheRestGoesOn) {
  auto file = metrics_file("/dev/full");
  for (int step = 1; step <= 5; ++step) {
    file->step(some_step(step), 0);
    file->flush();
  }
  file.reset();
  EXPECT_THAT(warnings_, ElementsAre(testing::AllOf(HasSubstr("gannet.metrics: cannot write /dev/full: No space left on device"),
                                                    HasSubstr("training continues"))));
}

TEST_F(Files, AFolderThatCannotBeMadeIsToldOnceForAllFilesOfAMonitor) {
  write_file(at("taken"), "a file, not a folder");
  auto csv = csv_files(at("taken/job"));
  auto events = tensorboard_events(at("taken/job"));
  for (int step = 1; step <= 3; ++step)
    for (auto* one : {csv.get(), events.get()}) {
      one->step(some_step(step), 0);
      one->flush();
    }
  EXPECT_THAT(warnings_, ElementsAre(testing::AllOf(HasSubstr("csv_monitor: cannot write"), HasSubstr("Not a directory")),
                                     HasSubstr("tensorboard: cannot write")));
}

TEST_F(Files, AFolderThatVanishedIsMadeAnewAfterAWhileAndWhatIsMissingIsTold) {
  Output output({.who = "gannet.metrics", .retry = std::chrono::milliseconds(1500)});
  const size_t file = output.open(at("gone/metrics.jsonl"));
  const auto add = [&](const std::string& line) {
    output.add(file, line);
    output.flush();
  };
  add("1\n");
  fs::remove_all(at("gone"));
  add("2\n");
  add("3\n");
  EXPECT_FALSE(fs::exists(at("gone")));
  std::this_thread::sleep_for(std::chrono::milliseconds(1550));
  add("4\n");
  EXPECT_EQ(read_file(at("gone/metrics.jsonl")), "4\n");
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("somebody has removed the file")));
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("gannet.metrics: can be written again; 2 lines are missing")));
}

TEST_F(Files, ALineThatACrashCutShortIsEndedBeforeTheRunGoesOn) {
  write_file(at("metrics.jsonl"), "{\"kind\": \"run\"}\n{\"kind\": \"st");
  metrics_file(at("metrics.jsonl"))->event({1, "resume", ""}, 0);
  const auto lines = lines_of(read_file(at("metrics.jsonl")));
  ASSERT_THAT(lines, SizeIs(3));
  EXPECT_EQ(lines[1], "{\"kind\": \"st");
  EXPECT_EQ(Json::parse(lines[2])["what"], "resume");
}

TEST_F(Files, APipeWithNobodyAtItsOtherEndHoldsNothingUp) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  metrics_file(at("pipe"))->event({1, "resume", ""}, 0);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("it is not a file")));
}

}  // namespace
}  // namespace gannet::observe
