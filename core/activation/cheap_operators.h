// The operators that a config may name to be computed again in backward: of those that are cheap beside a matrix product, those
// whose second run gives the same bits, and changes nothing else.
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
  struct Chosen {
    bool is_random;
  };
  /// Every overload of these names that makes a new tensor. Throws Error(kConfig) for a name that is none of them.
  /// `where` begins its sentence.
  explicit CheapOperators(const std::vector<std::string>& names, const std::string& where = "");
  const Chosen* find(const c10::OperatorHandle& op) const {
    const auto found = by_schema_.find(&op.schema());
    return found == by_schema_.end() ? nullptr : &found->second;
  }
  bool empty() const { return by_schema_.empty(); }
  /// All that can be named.
  static std::vector<std::string> names();

 private:
  std::unordered_map<const c10::FunctionSchema*, Chosen> by_schema_;
};

}  // namespace gannet::activation
