#include "engine/checkpoint/not_finite.h"

#include <ATen/core/grad_mode.h>

#include <string_view>
#include <vector>

#include "base/format.h"
#include "base/text.h"
#include "tensor/finite.h"

namespace gannet {
namespace {

constexpr std::string_view kParameter = "parameter/";  // as in stored_name(), state/state_entry.cpp
constexpr size_t kMostNames = 3;

}  // namespace

std::string not_finite_text(const std::map<std::string, uint64_t>& counts) {
  std::vector<std::string> names;
  size_t more = 0;
  for (const auto& [name, count] : counts) {
    if (!name.starts_with(kParameter)) continue;
    if (names.size() == kMostNames)
      ++more;
    else
      names.push_back(formatted("'{}' ({} element{})", name.substr(kParameter.size()), count, count == 1 ? "" : "s"));
  }
  if (names.empty()) return "";
  const size_t all = names.size() + more;
  return formatted("{} parameter{} not finite: {}{}", all, all == 1 ? " is" : "s are", join(names, ", "),
                   more ? formatted(" and {} more", more) : "");
}

std::string not_finite_text(const ParameterStore& store) {
  const at::NoGradGuard no_grad;
  std::map<std::string, uint64_t> counts;
  for (const auto& range : store.ranges())
    for (const auto& part : range.parts)
      if (range.masters().is_here())
        if (const uint64_t count = count_not_finite(range.master_of({part.offset, part.own, part.numel})))
          counts[std::string(kParameter) + range.parameters[part.tensor].name] += count;
  return not_finite_text(counts);
}

}  // namespace gannet
