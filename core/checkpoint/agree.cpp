#include "checkpoint/agree.h"

#include "base/check.h"
#include "base/format.h"
#include "base/outcome.h"

namespace gannet::checkpoint {

std::vector<Json> agree(const Ranks& ranks, const std::string& what, const std::function<Json()>& part) {
  // A result may contain bytes that are not UTF-8, such as those of a path.
  const std::string mine = outcome([&] { return part().dump(-1, ' ', false, Json::error_handler_t::replace); });
  const std::vector<std::string> outcomes = ranks.gather ? ranks.gather(what, mine) : std::vector<std::string>{mine};
  GANNET_CHECK(outcomes.size() == ranks.size, formatted("gathered {} texts of {} ranks", outcomes.size(), ranks.size));
  std::vector<Json> results;
  for (const std::string& text : results_of(outcomes)) {
    results.push_back(Json::parse(text, nullptr, false));
    GANNET_CHECK(!results.back().is_discarded(), formatted("a rank gave no JSON: {}", text.substr(0, 200)));
  }
  return results;
}

}  // namespace gannet::checkpoint
