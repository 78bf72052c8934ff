// The operators that a config may choose for recomputation in backward. They are cheap compared to
// a matrix product, a second run gives the same bits, and they have no side effects.
//
//   const CheapOperators chosen({"gelu", "layer_norm", "dropout"});
//   if (const auto* one = chosen.find(op)) ...
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <unordered_map>
#include <vector>

namespace gannet::activation {

class CheapOperators {
 public:
  struct ChosenOperator {
    bool is_random;
  };
  /// Chooses all overloads with these names that return one new tensor. Throws Error(kConfig) for a
  /// name that cannot be chosen. `where` is the prefix of the error message.
  explicit CheapOperators(const std::vector<std::string>& names, const std::string& where = "");
  const ChosenOperator* find(const c10::OperatorHandle& op) const {
    const auto found = by_schema_.find(&op.schema());
    return found == by_schema_.end() ? nullptr : &found->second;
  }
  bool empty() const { return by_schema_.empty(); }
  /// All names that can be chosen.
  static std::vector<std::string> names();

 private:
  std::unordered_map<const c10::FunctionSchema*, ChosenOperator> by_schema_;
};

}  // namespace gannet::activation
