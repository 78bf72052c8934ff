#include "step_facts.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "writes.h"

namespace gannet::exported {
namespace {

using Names = std::unordered_set<std::string_view>;

// Operators that draw random numbers. LibTorch tags most of them; composite operators may lack the
// tag.
const Names& random_names() {
  static const Names& names = *new Names{// never destroyed
                                         "dropout",
                                         "alpha_dropout",
                                         "feature_dropout",
                                         "feature_alpha_dropout",
                                         "native_dropout",
                                         "rrelu",
                                         "rrelu_with_noise",
                                         "scaled_dot_product_attention",
                                         "gru",
                                         "lstm",
                                         "rnn_relu",
                                         "rnn_tanh",
                                         "rand",
                                         "rand_like",
                                         "randint",
                                         "randint_like",
                                         "randn",
                                         "randn_like",
                                         "random",
                                         "randperm",
                                         "bernoulli",
                                         "binomial",
                                         "cauchy",
                                         "exponential",
                                         "geometric",
                                         "log_normal",
                                         "multinomial",
                                         "normal",
                                         "poisson",
                                         "uniform",
                                         "fractional_max_pool2d",
                                         "fractional_max_pool3d"};
  return names;
}

// "aten::add_" is named "add".
std::string_view base_name(const c10::OperatorHandle& op) {
  std::string_view name = op.operator_name().name;
  name.remove_prefix(std::min(name.size(), name.find("::") + 2));
  if (name.size() > 1 && name.ends_with('_') && !name.ends_with("__")) name.remove_suffix(1);
  return name;
}

template <class Visit>
void for_each_slot(const Operand& operand, const Visit& visit) {
  if (operand.kind == Operand::Kind::kValue) visit(operand.slot);
  for (const Operand& one : operand.list) for_each_slot(one, visit);
}

void add_slots(const Operand& operand, std::vector<size_t>& slots) {
  for_each_slot(operand, [&](size_t slot) {
    if (std::find(slots.begin(), slots.end(), slot) == slots.end()) slots.push_back(slot);
  });
}

bool is_view_of(const c10::FunctionSchema& schema, const c10::AliasInfo& argument) {
  for (const c10::Argument& result : schema.returns()) {
    if (!result.alias_info()) continue;
    for (const auto& set : result.alias_info()->beforeSets())
      if (argument.beforeSets().contains(set)) return true;
    for (const auto& inner : result.alias_info()->containedTypes())  // Tensor(a)[]
      for (const auto& set : inner.beforeSets())
        if (argument.beforeSets().contains(set) || argument.isWildcardBefore()) return true;
    if (result.alias_info()->isWildcardBefore() || argument.isWildcardBefore()) return true;
  }
  return false;
}

void add_operator_facts(const Step& step, const std::vector<bool>& is_buffer, StepFacts& facts) {
  const c10::FunctionSchema& schema = step.op->schema();
  const std::string_view name = base_name(*step.op);
  facts.is_random = step.op->hasTag(at::Tag::nondeterministic_seeded) || random_names().contains(name);
  const bool updates_buffers = name.find("batch_norm") != std::string_view::npos || name == "instance_norm";
  const bool may_share = may_return_argument(name) || (!updates_buffers && step.op->hasTag(at::Tag::maybe_aliasing_or_mutating));
  bool is_first_tensor = true;
  for (size_t i = 0; i < step.operands.size(); ++i) {
    const Operand& operand = step.operands[i];
    std::vector<size_t> slots;
    add_slots(operand, slots);
    const c10::AliasInfo* const alias = schema.arguments()[i].alias_info();
    if (alias && alias->isWrite()) facts.writes.insert(facts.writes.end(), slots.begin(), slots.end());
    const bool is_tensor = operand.form == Form::kTensor || operand.form == Form::kTensors;
    if ((alias && (alias->isWrite() || is_view_of(schema, *alias))) || (may_share && is_tensor && is_first_tensor))
      facts.shares.insert(facts.shares.end(), slots.begin(), slots.end());
    if (updates_buffers)
      for (const size_t slot : slots)
        if (is_buffer[slot]) facts.writes.push_back(slot);
    if (is_tensor && !slots.empty()) is_first_tensor = false;
  }
}

// A nested graph may return its operands. If it writes at all, it counts as writing into every
// operand.
void add_nested_facts(const Program& program, const Step& step, StepFacts& facts) {
  facts.shares = facts.reads;
  const size_t graphs = step.kind == Step::Kind::kCond ? 2 : 1;
  bool writes = false;
  for (size_t i = 0; i < graphs; ++i) {
    const Routine& routine = program.routines()[step.routines[i]];
    const std::vector<bool> is_buffer(routine.slots);
    for (const Step& inner : routine.steps) {
      const StepFacts found = facts_of(program, inner, is_buffer);
      facts.is_random |= found.is_random;
      facts.has_effect |= found.has_effect;
      writes |= !found.writes.empty();
    }
  }
  if (writes) facts.writes = facts.reads;
}

}  // namespace

StepFacts facts_of(const Program& program, const Step& step, const std::vector<bool>& is_buffer) {
  StepFacts facts;
  for (const Operand& one : step.operands) add_slots(one, facts.reads);
  switch (step.kind) {
    case Step::Kind::kOperator:
      add_operator_facts(step, is_buffer, facts);
      break;
    case Step::Kind::kGetItem:
      facts.shares = facts.reads;
      break;
    case Step::Kind::kPython:
      facts.has_effect = step.node->op == "py.assert";
      break;
    default:
      add_nested_facts(program, step, facts);
  }
  return facts;
}

}  // namespace gannet::exported
