#include "writes.h"

#include <ATen/core/alias_info.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "program.h"

namespace gannet::exported {
namespace {

// Given one tensor, these return it or a view of it; given several, they return a new one.
bool joins_several(std::string_view name, const std::vector<Operand>& operands) {
  if (name != "cartesian_prod" && name != "chain_matmul" && name != "einsum") return false;
  return std::none_of(operands.begin(), operands.end(),
                      [](const Operand& one) { return one.kind == Operand::Kind::kList && one.list.size() == 1; });
}

// In training mode these write running statistics, which their schemas do not declare.
bool writes_statistics(std::string_view name, const c10::FunctionSchema& schema, const std::vector<Operand>& operands) {
  if (name != "batch_norm" && name != "native_batch_norm" && name != "instance_norm") return false;
  for (size_t i = 0; i < operands.size(); ++i)
    if (schema.arguments()[i].name() == "training" || schema.arguments()[i].name() == "use_input_stats")
      return !(operands[i].constant.isBool() && !operands[i].constant.toBool());
  return true;
}

template <class Visit>
void each_slot(const Operand& operand, const Visit& visit) {
  if (operand.kind == Operand::Kind::kValue) visit(operand.slot);
  for (const Operand& one : operand.list) each_slot(one, visit);
}

}  // namespace

bool may_return_argument(std::string_view name) {
  static const auto& names = *new std::unordered_set<std::string_view>{// never destroyed
                                                                       "_unsafe_view",
                                                                       "alpha_dropout",
                                                                       "atleast_1d",
                                                                       "atleast_2d",
                                                                       "atleast_3d",
                                                                       "broadcast_tensors",
                                                                       "cartesian_prod",
                                                                       "chain_matmul",
                                                                       "chalf",
                                                                       "combinations",
                                                                       "conj_physical",
                                                                       "dropout",
                                                                       "einsum",
                                                                       "feature_alpha_dropout",
                                                                       "feature_dropout",
                                                                       "lift_fresh",
                                                                       "linalg_matrix_power",
                                                                       "matrix_power",
                                                                       "meshgrid",
                                                                       "native_dropout",
                                                                       "pad",
                                                                       "pixel_shuffle",
                                                                       "pixel_unshuffle",
                                                                       "rrelu",
                                                                       "sum_to_size",
                                                                       "type_as",
                                                                       "unsafe_chunk",
                                                                       "unsafe_split",
                                                                       "unsafe_split_with_sizes"};
  return names.contains(name);
}

Writes::Writes(size_t inputs) : guarded_(inputs, kNone), is_written_(inputs) {
  for (size_t i = 0; i < inputs; ++i) input_of_.push_back(i);
  joined_ = input_of_;
}

size_t Writes::first_of(size_t input) {
  while (joined_[input] != input) input = joined_[input] = joined_[joined_[input]];
  return input;
}

void Writes::join(size_t one, size_t other) {
  one = first_of(one);
  other = first_of(other);
  if (one == other) return;
  if (other < one) std::swap(one, other);
  joined_[other] = one;
  if (guarded_[one] == kNone) guarded_[one] = guarded_[other];
  if (is_written_[other]) is_written_[one] = true;
}

void Writes::add_view(size_t slot, size_t of) {
  const size_t input = input_of(of);
  if (input == kNone) return;
  if (slot >= input_of_.size()) input_of_.resize(slot + 1, kNone);
  if (input_of_[slot] == kNone)
    input_of_[slot] = input;
  else
    join(input_of_[slot], input);
}

std::optional<size_t> Writes::add_write(size_t slot) {
  if (input_of(slot) == kNone) return std::nullopt;
  const size_t input = first_of(input_of(slot));
  is_written_[input] = true;
  if (guarded_[input] == kNone) return std::nullopt;
  return guarded_[input];
}

std::optional<size_t> Writes::add_call(Writes& nested, std::span<const Operand> operands, const std::vector<Operand>& outputs,
                                       size_t first_result) {
  std::optional<size_t> guarded;
  std::vector<size_t> slot_of(operands.size(), kNone);  // by the representative of the nested inputs that count as one
  for (size_t i = 0; i < operands.size(); ++i)
    each_slot(operands[i], [&](size_t slot) {
      if (input_of(slot) == kNone) return;
      const size_t first = nested.first_of(i);
      if (nested.is_written_[first])
        if (const auto found = add_write(slot)) guarded = found;
      if (slot_of[first] == kNone)
        slot_of[first] = slot;
      else
        join(input_of(slot_of[first]), input_of(slot));
    });
  for (size_t k = 0; k < outputs.size(); ++k)
    each_slot(outputs[k], [&](size_t slot) {
      if (nested.input_of(slot) == kNone) return;
      if (const size_t of = slot_of[nested.first_of(nested.input_of(slot))]; of != kNone) add_view(first_result + k, of);
    });
  return guarded;
}

Effects effects_of(const std::string& name, const c10::FunctionSchema& schema, const std::vector<Operand>& operands) {
  Effects found;
  const bool is_view = may_return_argument(name) && !joins_several(name, operands),
             is_trained = writes_statistics(name, schema, operands);
  for (size_t i = 0; i < operands.size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    const bool is_statistic = argument.name() == "running_mean" || argument.name() == "running_var";
    if ((argument.alias_info() && argument.alias_info()->isWrite()) || (is_trained && is_statistic)) found.written.push_back(i);
    if (argument.alias_info() || is_view) found.viewed.push_back(i);
  }
  return found;
}

}  // namespace gannet::exported
