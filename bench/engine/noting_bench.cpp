// What recomputation by operator costs an operator of the forward: a chain of operators on tensors of 4 elements, with a graph.
// Contenders: LibTorch alone, the interception alone (which ZeRO stage 3 pays anyway), noting where no operator of the list runs
// but tensors are saved, and noting where every operator is of the list. Microseconds an operator, above LibTorch alone.
//
//   noting_bench [--operators 2000] [--rounds 21]
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/randn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "activation/selective.h"
#include "common/rounds.h"

namespace {

using gannet::activation::CheapOperators;
using gannet::activation::Selective;

int option(int argc, char** argv, const char* name, int fallback) {
  for (int i = 1; i + 1 < argc; ++i)
    if (!std::strcmp(argv[i], name)) return std::atoi(argv[i + 1]);
  return fallback;
}

}  // namespace

int main(int argc, char** argv) {
  const int operators = option(argc, argv, "--operators", 2000), count = option(argc, argv, "--rounds", 21);
  const at::Tensor x = at::randn({4}).requires_grad_();
  const auto chain = [&] {
    at::Tensor y = x;
    for (int i = 0; i < operators; ++i) y = at::gelu(y);
    return y;
  };
  const CheapOperators none({"silu"}), all({"gelu"});
  const auto rounds = gannet::bench::alternate({{"libtorch", [&] { chain(); }},
                                                {"interception",
                                                 [&] {
                                                   const gannet::zero::Interception armed;
                                                   chain();
                                                 }},
                                                {"other_operators",
                                                 [&] {
                                                   const Selective noting(none);
                                                   chain();
                                                 }},
                                                {"listed_operators",
                                                 [&] {
                                                   const Selective noting(all);
                                                   chain();
                                                 }}},
                                               count);
  const auto above = [&](const char* name, const char* base) {
    return (gannet::bench::median(rounds.at(name)) - gannet::bench::median(rounds.at(base))) / operators * 1e6;
  };
  std::printf(
      "{\"figure\": \"noting\", \"interception_us\": %.3f, \"other_operators_us\": %.3f, \"listed_operators_us\": %.3f, "
      "\"noting_above_interception_us\": %.3f, \"bar\": 1}\n",
      above("interception", "libtorch"), above("other_operators", "libtorch"), above("listed_operators", "libtorch"),
      above("listed_operators", "interception"));
}
