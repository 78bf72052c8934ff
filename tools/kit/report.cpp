#include "kit/report.h"

#include <cstdio>

#include "base/format.h"
#include "base/text.h"

namespace gannet::kit {
namespace {

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPassed:
      return "pass";
    case Verdict::kFailed:
      return "FAIL";
    case Verdict::kSame:
      return "same";
    case Verdict::kSkipped:
      return "skipped";
    case Verdict::kExcluded:
      return "excluded";
  }
  return "";
}

std::string padded(std::string text, size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text;
}

}  // namespace

std::string text_of(const CheckResult& result) {
  std::string text = formatted("  {}{}", padded(name_of(result.verdict), 10), padded(result.check, 24));
  if (result.verdict == Verdict::kPassed) return formatted("{} {:.2f} s\n", text, result.seconds);
  if (result.verdict != Verdict::kFailed) return formatted("{} {}\n", text, printable(result.reason));
  text += formatted(" {:.2f} s\n", result.seconds);
  for (const auto& [head, line] :
       {std::pair{"expected", &result.expected}, {"found", &result.found}, {"where", &result.where}, {"to do", &result.to_do}})
    if (!line->empty()) text += formatted("      {}{}\n", padded(head, 10), printable(*line, Lines::kMany));
  return text;
}

size_t count_of(const std::vector<PluginReport>& reports, Verdict verdict) {
  size_t count = 0;
  for (const auto& report : reports)
    for (const auto& result : report.results) count += result.verdict == verdict;
  return count;
}

std::string summary_of(const std::vector<PluginReport>& reports) {
  return formatted("{} passed, {} failed, {} skipped, {} excluded\n", count_of(reports, Verdict::kPassed),
                   count_of(reports, Verdict::kFailed), count_of(reports, Verdict::kSkipped),
                   count_of(reports, Verdict::kExcluded));
}

std::string json_of(const std::string& file, const std::vector<PluginReport>& reports) {
  List plugins;
  for (const auto& report : reports) {
    List checks;
    for (const auto& result : report.results) {
      Dict one{{"check", result.check}, {"verdict", lower(name_of(result.verdict))}, {"seconds", result.seconds}};
      if (result.verdict == Verdict::kFailed) {
        one["expected"] = result.expected;
        one["found"] = result.found;
        one["where"] = result.where;
        one["to_do"] = result.to_do;
      } else if (result.verdict != Verdict::kPassed) {
        one["reason"] = result.reason;
      }
      checks.push_back(std::move(one));
    }
    plugins.push_back(Dict{{"plugin", report.plugin}, {"checks", std::move(checks)}});
  }
  return Value(Dict{{"file", file},
                    {"passed", static_cast<int64_t>(count_of(reports, Verdict::kPassed))},
                    {"failed", static_cast<int64_t>(count_of(reports, Verdict::kFailed))},
                    {"skipped", static_cast<int64_t>(count_of(reports, Verdict::kSkipped))},
                    {"excluded", static_cast<int64_t>(count_of(reports, Verdict::kExcluded))},
                    {"plugins", std::move(plugins)}})
      .to_json();
}

}  // namespace gannet::kit
