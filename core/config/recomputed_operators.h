// The operators that gannet.activation_checkpointing.recompute may name. The table holds only
// names, so that a config can be checked without running anything. activation/cheap_operators.h
// finds LibTorch's overloads of them.
//
//   for (const RecomputedOperator& one : recomputed_operators()) ...
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gannet::config {

struct RecomputedOperator {
  std::string_view name;   // "gelu", for aten::gelu
  bool is_random = false;  // draws from a generator
};

/// The operators by kind, in the order of docs/activation_operators.md.
std::span<const RecomputedOperator> recomputed_operators();
std::vector<std::string> names_of_recomputed_operators();  // in alphabetical order
/// Throws Error(kConfig) with the nearest name if `name` is not one of them. `where` is the prefix
/// of the message: "ds_config.json:3:5: ".
const RecomputedOperator& recomputed_operator(const std::string& name, const std::string& where = "");

}  // namespace gannet::config
