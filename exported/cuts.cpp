#include "cuts.h"

#include <algorithm>
#include <map>
#include <set>

namespace gannet::exported {
namespace {

std::vector<size_t> ends_of_parts(const std::string& path) {
  std::vector<size_t> ends;
  for (size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', dot + 1)) ends.push_back(dot);
  ends.push_back(path.size());
  return ends;
}

// "transformer.h.0" for "transformer.h.0.attn"; empty if no part is a number.
std::string block_of(const std::string& path) {
  size_t begin = 0;
  for (const size_t end : ends_of_parts(path)) {
    if (end > begin && std::all_of(path.begin() + static_cast<std::ptrdiff_t>(begin),
                                   path.begin() + static_cast<std::ptrdiff_t>(end), [](char c) { return c >= '0' && c <= '9'; }))
      return path.substr(0, end);
    begin = end + 1;
  }
  return {};
}

// Paths that contain several units.
std::set<std::string> containers_of(const std::vector<std::string>& paths) {
  std::set<std::string> containers = {""};
  bool has_blocks = false;
  for (const std::string& path : paths) {
    const std::string block = block_of(path);
    if (block.empty()) continue;
    has_blocks = true;
    for (const size_t end : ends_of_parts(block))
      if (end < block.size()) containers.insert(block.substr(0, end));
  }
  if (has_blocks) return containers;
  // For a model without blocks: the common prefix of all paths, such as the module around which a
  // loss was wrapped.
  std::set<std::string> different(paths.begin(), paths.end());
  different.erase("");
  if (different.size() < 2) return containers;
  for (const size_t end : ends_of_parts(*different.begin())) {
    const std::string common = different.begin()->substr(0, end);
    if (!std::all_of(different.begin(), different.end(),
                     [&](const std::string& one) { return one == common || one.starts_with(common + "."); }))
      break;
    containers.insert(common);
  }
  return containers;
}

std::string unit_of(const std::string& path, const std::set<std::string>& containers) {
  if (const std::string block = block_of(path); !block.empty()) return block;
  for (const size_t end : ends_of_parts(path))
    if (!containers.contains(path.substr(0, end))) return path.substr(0, end);
  return {};
}

// Consecutive fixed steps of one unit.
struct UnitRun {
  std::string unit;
  size_t first = 0, last = 0;
  bool has_parameters = false, is_block = false;
};

void append(std::vector<UnitRun>& runs, const UnitRun& run) {
  if (!runs.empty() && (runs.back().unit == run.unit || !run.has_parameters)) {
    runs.back().last = run.last;
    runs.back().has_parameters |= run.has_parameters;
  } else if (!runs.empty() && !runs.back().has_parameters) {
    const size_t first = runs.back().first;
    runs.back() = run;
    runs.back().first = first;
  } else {
    runs.push_back(run);
  }
}

bool uses_weights(const Flow& flow, size_t step) {
  for (const size_t slot : flow.reads[step])
    if (slot < flow.inputs && flow.is_fixed_slot[slot]) return true;
  return false;
}

std::vector<UnitRun> runs_of(const Program& program, const Flow& flow) {
  const Routine& main = program.routines().back();
  std::vector<std::string> paths;
  for (size_t s = 0; s < flow.steps; ++s)
    if (flow.is_fixed[s]) paths.push_back(main.steps[s].node->layer);
  const std::vector<std::string> units = units_of(paths);
  std::vector<UnitRun> all, runs;
  for (size_t s = 0, i = 0; s < flow.steps; ++s) {
    if (!flow.is_fixed[s]) continue;
    const std::string& unit = units[i++];
    if (unit.empty()) continue;
    if (all.empty() || all.back().unit != unit) all.push_back({unit, s, s, false, unit == block_of(unit)});
    all.back().last = s;
    all.back().has_parameters |= uses_weights(flow, s);
  }
  for (const UnitRun& run : all) append(runs, run);
  const auto block = std::find_if(runs.begin(), runs.end(), [](const UnitRun& run) { return run.is_block; });
  if (block != runs.end() && block - runs.begin() > 1) {  // everything before the first block is one layer
    runs.front().last = (block - 1)->last;
    runs.erase(runs.begin() + 1, block);
  }
  return runs;
}

// Returns the cut in [first, last] that the fewest values cross; ties go to the last or the first
// of them (`takes_last`). kNone if no cut is possible.
size_t fewest(const Flow& flow, size_t first, size_t last, bool takes_last) {
  size_t best = Flow::kNone;
  for (size_t cut = first; cut <= last; ++cut) {
    if (!flow.may_cut[cut]) continue;
    if (best == Flow::kNone || flow.crossings[cut] < flow.crossings[best] ||
        (takes_last && flow.crossings[cut] == flow.crossings[best]))
      best = cut;
  }
  return best;
}

}  // namespace

std::vector<std::string> units_of(const std::vector<std::string>& paths) {
  const std::set<std::string> containers = containers_of(paths);
  std::vector<std::string> units;
  for (const std::string& path : paths) units.push_back(unit_of(path, containers));
  return units;
}

Cuts cuts_of(const Program& program, const Flow& flow) {
  Cuts cuts;
  size_t after_weights = 0;
  for (size_t s = 0; s < flow.steps; ++s)
    if (flow.is_fixed[s] && uses_weights(flow, s)) after_weights = s + 1;
  cuts.loss = fewest(flow, after_weights, flow.steps, /*takes_last=*/false);
  if (cuts.loss == Flow::kNone) cuts.loss = flow.steps;
  const std::vector<UnitRun> runs = runs_of(program, flow);
  std::map<std::string, size_t> uses;  // if a module is called twice, its second layer is NAME_2
  const auto begin = [&](const std::string& unit, size_t step) {
    const size_t use = ++uses[unit];
    cuts.layers.push_back({use == 1 ? unit : unit + "_" + std::to_string(use), step});
  };
  begin(runs.empty() ? "model" : runs.front().unit, 0);
  for (size_t i = 1; i < runs.size(); ++i) {
    const size_t cut = fewest(flow, runs[i - 1].last + 1, runs[i].first, /*takes_last=*/true);
    if (cut != Flow::kNone && cut < cuts.loss) begin(runs[i].unit, cut);
  }
  return cuts;
}

}  // namespace gannet::exported
