#include "state/saved_groups.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/format.h"
#include "base/text.h"
#include "state/saved_numbers.h"

namespace gannet {
namespace {

void append(const Value* tensors, std::vector<std::string>& to) {
  if (!tensors) return;
  for (const Value& name : tensors->as_list()) to.push_back(name.as_string());
}

std::map<std::string, size_t> group_of_each(const std::vector<GroupTensors>& groups) {
  std::map<std::string, size_t> of;
  for (size_t g = 0; g < groups.size(); ++g)
    for (const std::string& name : groups[g].tensors) of.emplace(name, g);
  return of;
}

std::string in_quotes(const std::vector<std::string>& names) {
  return names.empty() ? "" : formatted("'{}'", join(names, "', '"));
}

}  // namespace

std::vector<GroupTensors> saved_groups(const checkpoint::Opened& found) {
  std::vector<GroupTensors> groups;
  for (const Value& saved : saved_value(found, "groups").as_list()) {
    const Value* name = saved.as_dict().find("name");
    GroupTensors& group = groups.emplace_back();
    group.name = name && name->is_string() ? name->as_string() : formatted("group {}", groups.size() - 1);
    append(saved.as_dict().find("tensors"), group.tensors);
  }
  if (found.mesh().size(kPipeAxis) == 1) return groups;
  for (uint32_t rank = 0; rank < found.world_size(); ++rank)  // each stage has different tensors
    if (const Value* of_stage = found.rank_document(rank).find("group_tensors"))
      for (size_t g = 0; g < std::min(groups.size(), of_stage->as_list().size()); ++g)
        append(&of_stage->as_list()[g], groups[g].tensors);
  return groups;
}

GroupMapping compare_groups(const std::vector<GroupTensors>& saved, const std::vector<GroupTensors>& here) {
  GroupMapping mapping;
  const std::string counts = formatted("the checkpoint has {} parameter groups, this engine {}", saved.size(), here.size());
  const bool knows_tensors = std::any_of(saved.begin(), saved.end(), [](const auto& group) { return !group.tensors.empty(); });
  if (!knows_tensors) {  // groups are then matched by their order
    mapping.is_whole = saved.size() == here.size();
    for (size_t g = 0; g < here.size(); ++g) mapping.saved.push_back(mapping.is_whole ? std::optional(g) : std::nullopt);
    if (!mapping.is_whole) mapping.notes.push_back(formatted("{}: hyperparameters are the config's", counts));
    return mapping;
  }
  const auto there = group_of_each(saved), now = group_of_each(here);
  std::vector<std::set<size_t>> comes_from(here.size()), goes_to(saved.size());
  for (const auto& [name, g] : now)
    if (const auto found = there.find(name); found != there.end()) {
      comes_from[g].insert(found->second);
      goes_to[found->second].insert(g);
    }
  std::vector<std::string> others, moved;
  for (size_t g = 0; g < here.size(); ++g) {
    std::optional<size_t> same;
    if (comes_from[g].size() == 1 && goes_to[*comes_from[g].begin()].size() == 1) same = *comes_from[g].begin();
    if (comes_from[g].empty())
      for (size_t s = 0; s < saved.size() && !same; ++s)
        if (goes_to[s].empty() && saved[s].name == here[g].name) same = s;
    mapping.saved.push_back(same);
    if (same && saved[*same].name != here[g].name)
      mapping.notes.push_back(formatted("parameter group '{}' of the checkpoint is '{}' here: it has the same tensors",
                                        saved[*same].name, here[g].name));
    if (!same && !comes_from[g].empty()) others.push_back(here[g].name);
  }
  mapping.is_whole = others.empty();
  if (mapping.is_whole) return mapping;
  for (const auto& [name, g] : now)
    if (const auto found = there.find(name);
        found != there.end() && !mapping.saved[g] && saved[found->second].name != here[g].name)
      moved.push_back(formatted("'{}' was in '{}' and is in '{}'", name, saved[found->second].name, here[g].name));
  const size_t count = moved.size();
  moved.resize(std::min<size_t>(count, 3));
  mapping.notes.push_back(
      formatted("{}{}{}{}: hyperparameters of {} are the config's",
                saved.size() == here.size() ? std::string("parameter groups have other tensors than in the checkpoint") : counts,
                moved.empty() ? "" : " (", join(moved, ", "),
                moved.empty() ? ""
                : count > 3   ? formatted(", and {} more)", count - 3)
                              : std::string(")"),
                in_quotes(others)));
  return mapping;
}

}  // namespace gannet
