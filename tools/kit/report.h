// The results of the checks, as text and as JSON.
#pragma once

#include <string>
#include <vector>

#include "kit/check.h"

namespace gannet::kit {

struct PluginReport {
  std::string plugin;  // "optimizer/adamw@cpu"; "file" for the handshake
  std::vector<CheckResult> results;
};

// One line for a check that passed; for a failure, what was expected, what was found, where, and
// what to do.
std::string text_of(const CheckResult& result);
// The last line: how many checks passed, failed, were skipped or were excluded.
std::string summary_of(const std::vector<PluginReport>& reports);
std::string json_of(const std::string& file, const std::vector<PluginReport>& reports);
size_t count_of(const std::vector<PluginReport>& reports, Verdict verdict);

}  // namespace gannet::kit
