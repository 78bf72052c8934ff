#include "records.h"

#include <gannet/error.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "common/json.h"

namespace gannet::trials {

namespace fs = std::filesystem;

void write_file(const std::string& path, const std::string& text) {
  const std::string beside = path + ".tmp";
  {
    std::ofstream out(beside, std::ios::binary);
    out << text;
    out.flush();
    if (!out) throw Error(ErrorCode::kIo, "cannot write " + path, "is the disk full, or the folder read-only?");
  }
  fs::rename(beside, path);
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string shown(const TrialMetrics& metrics) {
  std::string line;
  for (const auto& [name, number] : metrics) {
    char text[32];
    std::snprintf(text, sizeof text, "%.6g", number);
    line += (line.empty() ? "" : ", ") + name + " " + text;
  }
  return line;
}

TrialRecords::TrialRecords(const std::string& folder, int64_t batches, bool is_writer)
    : path_(folder + "/trial.jsonl"), is_writer_(is_writer) {
  if (!is_writer_) return;
  std::string kept;
  std::istringstream lines(read_file(path_));
  for (std::string line; std::getline(lines, line) && !lines.eof();) {  // the last line may have been cut off
    const Value record = common::parse_json(line, path_);
    if (record.at("batches").as_int() <= batches) kept += line + '\n';
  }
  write_file(path_, kept);
}

void TrialRecords::write(const char* kind, int64_t batches, std::optional<double> epochs, const TrialMetrics& metrics) {
  if (!is_writer_) return;
  Dict values;
  for (const auto& [name, number] : metrics) values[name] = std::isfinite(number) ? Value(number) : Value();
  const Value record =
      Dict{{"kind", kind}, {"batches", batches}, {"epochs", epochs ? Value(*epochs) : Value()}, {"metrics", values}};
  std::ofstream out(path_, std::ios::binary | std::ios::app);
  out << record.to_json() << '\n';
  out.flush();
  if (!out) throw Error(ErrorCode::kIo, "cannot write " + path_, "is the disk full, or the folder read-only?");
}

}  // namespace gannet::trials
