#include "report/records.h"

#include <gannet/error.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "base/text.h"
#include "report/line.h"

namespace gannet::report {
namespace {

namespace fs = std::filesystem;

constexpr size_t kNamedBadLines = 3;
constexpr int kMaxTries = 32;  // to find a whole record in a line

std::string file_in(const fs::path& folder) {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_regular_file() && entry.path().extension() == ".jsonl") found.push_back(entry.path().filename().string());
  if (found.size() == 1) return (folder / found[0]).string();
  std::sort(found.begin(), found.end());
  if (found.empty())
    throw Error(ErrorCode::kNotFound, "there is no metrics file (*.jsonl) in the folder " + folder.string(),
                "a run writes one if the config has \"gannet\": {\"metrics\": {\"path\": \"metrics.jsonl\"}}");
  throw Error(
      ErrorCode::kArgument,
      "there are " + std::to_string(found.size()) + " metrics files in the folder " + folder.string() + ": " + join(found, ", "),
      "name one of them");
}

class RecordReader {
 public:
  explicit RecordReader(Records& records) : records_(records) {}

  void read(std::istream& in) {
    std::string line;
    for (int64_t number = 1; std::getline(in, line); ++number) {
      const bool is_cut = in.eof();  // no newline after it
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      add_line(line, number, is_cut);
    }
    if (bad_.empty() || used_ == 0) return;
    std::string note = bad_.size() == 1 ? "1 line was left out: " : std::to_string(bad_.size()) + " lines were left out: ";
    for (size_t i = 0; i < std::min(bad_.size(), kNamedBadLines); ++i) note += (i ? "; " : "") + bad_[i];
    if (bad_.size() > kNamedBadLines) note += "; and so on";
    records_.notes.push_back(note);
  }

  int64_t used() const { return used_; }
  const std::string& first_bad() const { return bad_.front(); }
  bool has_bad() const { return !bad_.empty(); }

 private:
  void add_line(const std::string& line, int64_t number, bool is_cut) {
    const std::string where = "line " + std::to_string(number);
    try {
      add(parse_line(line));
    } catch (const BadLine& bad) {
      if (is_cut && used_ > 0) {
        records_.notes.push_back("the last line was cut short, as by a crash; the report ends with the one before it");
        return;
      }
      // A crash may have cut a line short, and the next run may have appended to it.
      size_t at = 0;
      for (int tries = 0; tries < kMaxTries && (at = line.find("{\"kind\"", at + 1)) != std::string::npos; ++tries) {
        try {
          add(parse_line(line.substr(at)));
          records_.notes.push_back(where +
                                   " begins with a record that was cut short, as by a crash; the complete one after it is used");
          return;
        } catch (const BadLine&) {  // a plugin's row has a kind too
        }
      }
      bad_.push_back(where + " " + bad.what());
    }
  }

  void add(ParsedLine line) {
    if (line.schema > kSchema)
      throw Error(ErrorCode::kUnsupported,
                  records_.path + " has schema " + std::to_string(line.schema) + ", written by Gannet " + line.run.gannet +
                      "; this one reads up to " + std::to_string(kSchema),
                  "make the report with the Gannet that wrote the file, or a newer one");
    ++used_;
    if (line.kind == ParsedLine::Kind::kRun) {
      records_.runs.push_back(std::move(line.run));
      return;
    }
    if (records_.runs.empty()) {
      records_.notes.push_back("the file does not begin with a run record: the run's settings are unknown");
      records_.runs.emplace_back();
    }
    RunRecord& run = records_.runs.back();
    const size_t index = records_.runs.size() - 1;
    if (line.kind == ParsedLine::Kind::kEvent) {
      line.event.run = index;
      run.seconds = std::max(run.seconds, line.event.time);
      records_.events.push_back(std::move(line.event));
    } else if (line.kind == ParsedLine::Kind::kStep) {
      line.step.run = index;
      add_step(std::move(line), run);
    } else if (line.kind == ParsedLine::Kind::kValues) {
      run.seconds = std::max(run.seconds, line.step.time);
      add_late_values(line);
    }
  }

  void add_step(ParsedLine line, RunRecord& run) {
    StepRecord& step = line.step;
    run.seconds = std::max(run.seconds, step.time);
    run.first_step = run.steps == 0 ? step.step : std::min(run.first_step, step.step);
    run.last_step = std::max(run.last_step, step.step);
    ++run.steps;
    step.samples = run.train_batch_size;
    while (!records_.steps.empty() && records_.steps.back().step >= step.step) {
      ++records_.runs[records_.steps.back().run].left_behind;
      records_.steps.pop_back();
    }
    step.phases = numbered(line.phases, records_.phase_names);
    step.memory = numbered(line.memory, records_.memory_names);
    step.counts = numbered(line.counts, records_.count_names);
    step.values = numbered(line.values, records_.value_names);
    records_.steps.push_back(std::move(step));
  }

  // Recorded after the last step, to which they are added.
  void add_late_values(const ParsedLine& line) {
    if (records_.steps.empty() || records_.steps.back().step != line.step.step) return;
    IndexedValues& values = records_.steps.back().values;
    for (const auto& [index, value] : numbered(line.values, records_.value_names))
      if (std::none_of(values.begin(), values.end(), [&, at = index](const auto& one) { return one.first == at; }))
        values.emplace_back(index, value);
  }

  static IndexedValues numbered(const std::vector<std::pair<std::string, double>>& named, std::vector<std::string>& names) {
    IndexedValues numbers;
    for (const auto& [name, value] : named) {
      const auto found = std::find(names.begin(), names.end(), name);
      numbers.emplace_back(static_cast<size_t>(found - names.begin()), value);
      if (found == names.end()) names.push_back(name);
    }
    return numbers;
  }

  Records& records_;
  std::vector<std::string> bad_;
  int64_t used_ = 0;
};

}  // namespace

Records read_records(const std::string& path) {
  Records records;
  std::error_code error;
  records.path = fs::is_directory(path, error) ? file_in(path) : path;
  if (!fs::exists(records.path, error))
    throw Error(ErrorCode::kNotFound, "there is no metrics file " + records.path,
                "a run writes one if the config has \"gannet\": {\"metrics\": {\"path\": \"metrics.jsonl\"}}");
  std::ifstream in(records.path, std::ios::binary);
  if (!in) throw Error(ErrorCode::kIo, "cannot read the metrics file " + records.path, "is it readable for this user?");
  RecordReader reader(records);
  reader.read(in);
  if (in.bad()) throw Error(ErrorCode::kIo, "reading the metrics file " + records.path + " failed half-way");
  if (reader.used() == 0) {
    if (!reader.has_bad())
      throw Error(ErrorCode::kCorrupt, records.path + " is empty: no run has written to it yet",
                  "a run writes its first line when it begins");
    throw Error(ErrorCode::kCorrupt, records.path + " is not a metrics file: " + reader.first_bad(),
                "a metrics file holds one JSON object a line, the first of kind \"run\"");
  }
  if (records.steps.empty()) records.notes.push_back("no step has been recorded: there are no charts");
  return records;
}

}  // namespace gannet::report
