// The report's tables, and the text that it shares with the terminal.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "report/charts.h"

namespace gannet::report {

// An entry at the head of the report: a label, a value, and a line below it.
struct Tile {
  std::string label, value, detail;
};

std::vector<Tile> tiles_of(const Records& records);
int64_t skipped_steps(const Records& records);
std::vector<std::string> changed_keys(const RunRecord& before, const RunRecord& after);  // the config's keys that differ

std::string skipped_table(const Records& records);
std::string events_table(const Records& records);
std::string runs_table(const Records& records);
std::string numbers_table(const Charts& charts);
std::string steps_table(const Records& records);
std::string config_table(const RunRecord& run);
std::string plugins_table(const RunRecord& run);
std::string machine_table(const RunRecord& run);

}  // namespace gannet::report
