// Counts the operations of an operator from the shapes of one call. Conventions (docs/profiler.md):
// a multiply-add counts as two operations; a sum of products may start from the bias at no cost;
// attention is counted in full, even if it is causal; each element of a softmax or of an activation
// counts as one.
//
//   const Rule* rule = find_rule("aten::addmm");   // null: no rule; the operator is listed as not counted
//   OperationCount work = rule->count(call);
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "profiler/call.h"

namespace gannet::profiler {

struct OperationCount {
  int64_t flops = 0;
  int64_t macs = 0;
};

struct Rule {
  const char* kind = "";
  OperationCount (*function)(const Call&, double factor) = nullptr;  // null: moves or creates data, but computes nothing
  double factor = 1;

  OperationCount count(const Call& call) const { return function ? function(call, factor) : OperationCount(); }
  bool computes() const { return function != nullptr; }
};

using Rules = std::unordered_map<std::string, Rule>;
const Rule* find_rule(const std::string& name);  // "aten::add_" uses the rule of "aten::add"

// Each function adds the rules of one group of operators.
void add_product_rules(Rules& rules);   // matrix products, convolutions, attention, recurrent layers
void add_element_rules(Rules& rules);   // normalization, activations, softmax, pooling, sums, losses, arithmetic
void add_movement_rules(Rules& rules);  // views, copies, look-ups, random numbers, comparisons: 0 operations

}  // namespace gannet::profiler
