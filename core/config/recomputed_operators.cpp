#include "config/recomputed_operators.h"

#include <gannet/error.h>

#include <algorithm>

#include "base/format.h"
#include "base/text.h"

namespace gannet::config {
namespace {

// Excluded: batch_norm and instance_norm, which update running statistics on each call; rrelu,
// which writes its noise into the caller's tensor; matrix products, convolutions and attention,
// which are too expensive to recompute.
constexpr RecomputedOperator kRows[] = {
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

std::span<const RecomputedOperator> recomputed_operators() { return kRows; }

std::vector<std::string> names_of_recomputed_operators() {
  std::vector<std::string> names;
  for (const RecomputedOperator& one : kRows) names.emplace_back(one.name);
  std::sort(names.begin(), names.end());
  return names;
}

const RecomputedOperator& recomputed_operator(const std::string& name, const std::string& where) {
  const auto* const found = std::find_if(std::begin(kRows), std::end(kRows), [&](const auto& one) { return one.name == name; });
  if (found != std::end(kRows)) return *found;
  const std::vector<std::string> names = names_of_recomputed_operators();
  throw Error(ErrorCode::kConfig,
              formatted("{}gannet.activation_checkpointing.recompute names '{}', which is not an operator that Gannet computes "
                        "again by itself{}",
                        where, printable(name), gannet::did_you_mean(name, names)),
              formatted("the operators are {}", join(names, ", ")));
}

}  // namespace gannet::config
