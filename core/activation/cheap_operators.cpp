#include "activation/cheap_operators.h"

#include "config/recomputed_operators.h"

namespace gannet::activation {

std::vector<std::string> CheapOperators::names() { return config::names_of_recomputed_operators(); }

CheapOperators::CheapOperators(const std::vector<std::string>& chosen, const std::string& where) {
  if (chosen.empty()) return;
  std::unordered_map<std::string, bool> wanted;
  for (const std::string& name : chosen) wanted.emplace("aten::" + name, config::recomputed_operator(name, where).is_random);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto found = wanted.find(name.name);
    if (found == wanted.end()) continue;
    const auto op = dispatcher.findSchema(name);
    if (!op || op->schema().is_mutable()) continue;
    const auto& returns = op->schema().returns();
    if (returns.size() == 1 && returns[0].type()->kind() == c10::TypeKind::TensorType)
      by_schema_.emplace(&op->schema(), ChosenOperator{found->second});
  }
}

}  // namespace gannet::activation
