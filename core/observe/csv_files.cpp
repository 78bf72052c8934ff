// Implements csv_monitor: writes the same files as DeepSpeed, with one row per accumulation
// boundary.
#include <algorithm>
#include <map>

#include "base/format.h"
#include "observe/output.h"
#include "observe/writers.h"

namespace gannet::observe {
namespace {

class CsvFiles : public Writer {
 public:
  explicit CsvFiles(std::string folder) : output_({.who = "csv_monitor"}), folder_(std::move(folder)) {}

  void step(const Step& step, double) override { add(scalars_of(step), step.samples); }
  void values(const LateValues& late, double) override { add(scalars_of(late), late.samples); }
  void flush() override { output_.flush(); }

 private:
  void add(const std::vector<std::pair<std::string, double>>& scalars, int64_t samples) {
    for (const auto& [tag, value] : scalars) output_.add(file_of(tag), formatted("{},{}\r\n", samples, Value(value).to_json()));
  }
  // The values of "Train/Samples/lr" go to Train_Samples_lr.csv, under the header "step,lr".
  size_t file_of(const std::string& tag) {
    const auto [place, is_new] = files_.try_emplace(tag);
    if (!is_new) return place->second;
    std::string name = tag;
    std::replace_if(name.begin(), name.end(), [](char letter) { return letter == '/' || letter == ' '; }, '_');
    return place->second =
               output_.open(formatted("{}/{}.csv", folder_, name), formatted("step,{}\r\n", tag.substr(tag.rfind('/') + 1)));
  }

  Output output_;
  std::string folder_;
  std::map<std::string, size_t> files_;
};

}  // namespace

std::unique_ptr<Writer> csv_files(const std::string& folder) { return std::make_unique<CsvFiles>(folder); }

}  // namespace gannet::observe
