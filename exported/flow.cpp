#include "flow.h"

#include <algorithm>
#include <numeric>

#include "step_facts.h"

namespace gannet::exported {
namespace {

using ValueKind = Flow::Kind;

ValueKind kind_of_result(const Step& step, size_t index, const std::vector<ValueKind>& kinds) {
  if (step.kind == Step::Kind::kPython) return ValueKind::kNumber;
  if (step.kind == Step::Kind::kGetItem) {
    // For a list of tensors or sizes. An ATen operator's schema tells the two apart; Python
    // operators take sizes only.
    return step.operands[0].kind == Operand::Kind::kValue && kinds[step.operands[0].slot] == ValueKind::kList
               ? ValueKind::kTensor
               : ValueKind::kNumber;
  }
  if (step.kind != Step::Kind::kOperator) return ValueKind::kTensor;
  const c10::Type& type = *step.op->schema().returns()[index].type();
  if (type.kind() == c10::TypeKind::TensorType) return ValueKind::kTensor;
  return type.kind() == c10::TypeKind::ListType ? ValueKind::kList : ValueKind::kNumber;
}

// Disjoint sets of slots (union-find).
class Groups {
 public:
  explicit Groups(size_t slots) : parents_(slots) { std::iota(parents_.begin(), parents_.end(), size_t{0}); }
  size_t find(size_t slot) {
    while (parents_[slot] != slot) slot = parents_[slot] = parents_[parents_[slot]];
    return slot;
  }
  void join(size_t a, size_t b) { parents_[find(a)] = find(b); }

 private:
  std::vector<size_t> parents_;
};

// Finds the fixed steps, and the cuts that would split a group.
class Analysis {
 public:
  Analysis(const Program& program, Flow& flow)
      : program_(program), routine_(program.routines().back()), flow_(flow), groups_(routine_.slots) {}

  void run() {
    read_steps();
    join_groups();
    spread();
    find_uses();
    find_cuts();
  }

 private:
  const Placeholder::Kind& kind_of(size_t slot) const { return program_.file().placeholders[slot].kind; }
  bool is_given(size_t slot) const { return slot < flow_.inputs; }
  void read_steps();
  void join_groups();
  void spread();
  bool fix_step(size_t s);
  void find_uses();
  void find_cuts();
  void forbid(size_t first, size_t last) {  // cuts before the steps of [first, last]
    if (first > last) return;
    ++forbidden_[first];
    --forbidden_[last + 1];
  }

  const Program& program_;
  const Routine& routine_;
  Flow& flow_;
  Groups groups_;
  std::vector<StepFacts> facts_;
  std::vector<bool> is_written_placeholder_;  // by group: whether it contains a placeholder that is written into
  std::vector<bool> is_fixed_group_;          // by group, for groups that are written into
  std::vector<int64_t> forbidden_;
};

void Analysis::read_steps() {
  flow_.inputs = routine_.inputs;
  flow_.steps = routine_.steps.size();
  flow_.kinds.assign(routine_.slots, ValueKind::kTensor);
  flow_.made_by.assign(routine_.slots, Flow::kNone);
  std::vector<bool> is_buffer(routine_.slots);
  for (size_t i = 0; i < flow_.inputs; ++i) is_buffer[i] = kind_of(i) == Placeholder::Kind::kBuffer;
  for (size_t s = 0; s < flow_.steps; ++s) {
    const Step& step = routine_.steps[s];
    facts_.push_back(facts_of(program_, step, is_buffer));
    flow_.reads.push_back(facts_.back().reads);
    for (size_t i = 0; i < step.results; ++i) {
      flow_.kinds[step.first_result + i] = kind_of_result(step, i, flow_.kinds);
      flow_.made_by[step.first_result + i] = s;
    }
  }
}

void Analysis::join_groups() {
  for (size_t s = 0; s < flow_.steps; ++s)
    for (const size_t slot : facts_[s].shares)
      for (size_t i = 0; i < routine_.steps[s].results; ++i) {
        const size_t result = routine_.steps[s].first_result + i;
        if (flow_.kinds[result] != ValueKind::kNumber && flow_.kinds[slot] != ValueKind::kNumber) groups_.join(result, slot);
      }
  flow_.writes.resize(routine_.slots);
  is_written_placeholder_.assign(routine_.slots, false);
  is_fixed_group_.assign(routine_.slots, false);
  for (size_t slot = 0; slot < routine_.slots; ++slot) flow_.group_of.push_back(groups_.find(slot));
  for (size_t s = 0; s < flow_.steps; ++s)
    for (const size_t slot : facts_[s].writes) {
      auto& writes = flow_.writes[flow_.group_of[slot]];
      if (writes.empty() || writes.back() != s) writes.push_back(s);
    }
  for (size_t slot = 0; slot < flow_.inputs; ++slot)
    if (!flow_.writes[flow_.group_of[slot]].empty())
      is_written_placeholder_[flow_.group_of[slot]] = is_fixed_group_[flow_.group_of[slot]] = true;
}

// Whether the step became fixed, or made a group fixed.
bool Analysis::fix_step(size_t s) {
  const StepFacts& facts = facts_[s];
  bool is_fixed = flow_.is_fixed[s] || facts.is_random || facts.has_effect;
  for (const size_t slot : facts.reads) is_fixed |= flow_.is_fixed_slot[slot] || (is_fixed_group_[flow_.group_of[slot]]);
  const Step& step = routine_.steps[s];
  for (size_t i = 0; i < step.results; ++i) is_fixed |= is_fixed_group_[flow_.group_of[step.first_result + i]];
  if (!is_fixed) return false;
  bool is_new = !flow_.is_fixed[s];
  flow_.is_fixed[s] = true;
  const auto fix_group = [&](size_t slot) {
    const size_t group = flow_.group_of[slot];
    if (flow_.writes[group].empty() || is_fixed_group_[group]) return;
    is_fixed_group_[group] = is_new = true;
  };
  for (const size_t slot : facts.writes) fix_group(slot);
  for (size_t i = 0; i < step.results; ++i) {
    flow_.is_fixed_slot[step.first_result + i] = true;
    fix_group(step.first_result + i);
  }
  return is_new;
}

// A group that becomes fixed also fixes the earlier steps that made its values, so this repeats
// until nothing changes. Each pass fixes at least one group, and few groups of a graph are written
// into.
void Analysis::spread() {
  flow_.is_fixed.assign(flow_.steps, false);
  flow_.is_fixed_slot.assign(routine_.slots, false);
  for (size_t i = 0; i < flow_.inputs; ++i)
    flow_.is_fixed_slot[i] = kind_of(i) == Placeholder::Kind::kParameter || kind_of(i) == Placeholder::Kind::kBuffer;
  bool changes = true;
  while (changes) {
    const std::vector<bool> before = is_fixed_group_;
    for (size_t s = 0; s < flow_.steps; ++s) fix_step(s);
    changes = before != is_fixed_group_;
  }
}

void Analysis::find_uses() {
  flow_.last_fixed_use.assign(routine_.slots, Flow::kNone);
  for (size_t s = 0; s < flow_.steps; ++s)
    if (flow_.is_fixed[s])
      for (const size_t slot : flow_.reads[s]) flow_.last_fixed_use[slot] = s;
  for (const Operand& one : routine_.outputs)
    if (one.kind == Operand::Kind::kValue) flow_.last_fixed_use[one.slot] = flow_.steps;
}

void Analysis::find_cuts() {
  forbidden_.assign(flow_.steps + 2, 0);
  std::vector<size_t> first(routine_.slots, Flow::kNone), last(routine_.slots, 0);  // by group
  const auto touch = [&](size_t slot, size_t s) {
    const size_t group = flow_.group_of[slot];
    first[group] = std::min(first[group], s);
    last[group] = std::max(last[group], s);
  };
  for (size_t s = 0; s < flow_.steps; ++s) {
    for (size_t i = 0; i < routine_.steps[s].results; ++i) touch(routine_.steps[s].first_result + i, s);
    for (const size_t slot : flow_.reads[s]) touch(slot, s);
  }
  for (size_t group = 0; group < routine_.slots; ++group)
    if (is_fixed_group_[group] && first[group] != Flow::kNone)
      forbid(first[group] + 1, is_written_placeholder_[group] ? last[group] : flow_.writes[group].back());
  std::vector<int64_t> change(flow_.steps + 2);
  for (size_t slot = flow_.inputs; slot < routine_.slots; ++slot) {
    const size_t made = flow_.made_by[slot], used = flow_.last_fixed_use[slot];
    if (!flow_.is_fixed_slot[slot] || used == Flow::kNone || used <= made) continue;
    if (flow_.kinds[slot] == ValueKind::kList) forbid(made + 1, used);
    ++change[made + 1];
    --change[used + 1];
  }
  int64_t forbidden = 0, crossings = 0;
  for (size_t cut = 0; cut <= flow_.steps; ++cut) {
    forbidden += forbidden_[cut];
    crossings += change[cut];
    flow_.may_cut.push_back(forbidden == 0);
    flow_.crossings.push_back(static_cast<size_t>(crossings));
  }
}

}  // namespace

Flow::Flow(const Program& program) { Analysis(program, *this).run(); }

std::vector<size_t> Flow::crossing(size_t cut) const {
  std::vector<size_t> slots;
  for (size_t slot = inputs; slot < made_by.size(); ++slot)
    if (is_fixed_slot[slot] && made_by[slot] < cut && last_fixed_use[slot] != kNone && last_fixed_use[slot] >= cut)
      slots.push_back(slot);
  return slots;
}

std::vector<size_t> Flow::with_free_steps(const std::vector<size_t>& wanted, const std::vector<size_t>& results) const {
  std::vector<bool> is_taken(steps);
  std::vector<size_t> open;
  const auto take = [&](size_t s) {
    if (is_taken[s]) return;
    is_taken[s] = true;
    open.push_back(s);
  };
  const auto need = [&](size_t slot, size_t reader) {
    if (is_fixed_slot[slot]) return;
    if (made_by[slot] != kNone) take(made_by[slot]);
    for (const size_t write : writes[group_of[slot]])
      if (write < reader) take(write);
  };
  for (const size_t s : wanted) take(s);
  for (const size_t slot : results) need(slot, steps);
  while (!open.empty()) {
    const size_t s = open.back();
    open.pop_back();
    for (const size_t slot : reads[s]) need(slot, s);
  }
  std::vector<size_t> all;
  for (size_t s = 0; s < steps; ++s)
    if (is_taken[s]) all.push_back(s);
  return all;
}

}  // namespace gannet::exported
