#include "activation/cheap_operators.h"

#include <gannet/error.h>

#include <algorithm>
#include <string_view>

#include "base/format.h"
#include "base/text.h"

namespace gannet::activation {
namespace {

struct Row {
  std::string_view name;
  bool is_random = false;
};

// Not among them: batch_norm and instance_norm, which move running statistics each time; rrelu, which writes its noise into a
// tensor of the caller's; products, convolutions and attention, which are what recomputation is to spare.
constexpr Row kRows[] = {
    // activations
    {"celu"},
    {"elu"},
    {"gelu"},
    {"glu"},
    {"hardshrink"},
    {"hardsigmoid"},
    {"hardswish"},
    {"hardtanh"},
    {"leaky_relu"},
    {"log_sigmoid"},
    {"mish"},
    {"prelu"},
    {"relu"},
    {"relu6"},
    {"selu"},
    {"sigmoid"},
    {"silu"},
    {"softplus"},
    {"softshrink"},
    {"tanh"},
    {"threshold"},
    // norms and softmax
    {"group_norm"},
    {"layer_norm"},
    {"rms_norm"},
    {"log_softmax"},
    {"softmax"},
    // dropout
    {"alpha_dropout", true},
    {"dropout", true},
    {"feature_alpha_dropout", true},
    {"feature_dropout", true},
    // arithmetic, element by element
    {"abs"},
    {"add"},
    {"clamp"},
    {"cos"},
    {"div"},
    {"erf"},
    {"exp"},
    {"log"},
    {"masked_fill"},
    {"mul"},
    {"neg"},
    {"pow"},
    {"reciprocal"},
    {"rsqrt"},
    {"rsub"},
    {"sin"},
    {"sqrt"},
    {"square"},
    {"sub"},
    {"where"},
    // copies
    {"cat"},
    {"clone"},
    {"contiguous"},
    {"embedding"},
    {"reshape"},
    {"stack"},
    {"to"},
};

}  // namespace

std::vector<std::string> CheapOperators::names() {
  std::vector<std::string> names;
  for (const Row& row : kRows) names.emplace_back(row.name);
  std::sort(names.begin(), names.end());
  return names;
}

CheapOperators::CheapOperators(const std::vector<std::string>& chosen, const std::string& where) {
  if (chosen.empty()) return;
  std::unordered_map<std::string, bool> wanted;
  for (const std::string& name : chosen) {
    const auto* const row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& one) { return one.name == name; });
    if (row == std::end(kRows))
      throw Error(ErrorCode::kConfig,
                  formatted("{}/gannet/activation_checkpointing/recompute names '{}', which is no operator that Gannet computes "
                            "again by itself{}",
                            where, printable(name), did_you_mean(name, names())),
                  formatted("the operators are {}", join(names(), ", ")));
    wanted.emplace("aten::" + name, row->is_random);
  }
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto found = wanted.find(name.name);
    if (found == wanted.end()) continue;
    const auto op = dispatcher.findSchema(name);
    if (!op || op->schema().is_mutable()) continue;
    const auto& returns = op->schema().returns();
    if (returns.size() == 1 && returns[0].type()->kind() == c10::TypeKind::TensorType)
      by_schema_.emplace(&op->schema(), Chosen{found->second});
  }
}

}  // namespace gannet::activation
