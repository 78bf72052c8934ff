// Measures what per-operator recomputation adds to each operator of the forward: a chain of
// operators on tensors of 4 elements, with a graph. Contenders: plain LibTorch, interception alone
// (a cost that ZeRO stage 3 has anyway), noting when tensors are saved but no listed operator runs,
// and noting when every operator is listed. Figures are microseconds of the thread's CPU time per
// operator above plain LibTorch, medians of alternating rounds that include destroying the graph.
//
//   noting_bench [--operators 2000] [--rounds 21]
#include <ATen/Parallel.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/randn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <string>
#include <vector>

#include "activation/selective.h"
#include "common/rounds.h"

namespace {

using gannet::activation::CheapOperators;
using gannet::activation::SelectiveRecomputation;

// CPU time of this thread, since the machine is shared.
double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

int option(int argc, char** argv, const char* name, int fallback) {
  for (int i = 1; i + 1 < argc; ++i)
    if (!std::strcmp(argv[i], name)) return std::atoi(argv[i + 1]);
  return fallback;
}

}  // namespace

int main(int argc, char** argv) {
  const int operators = option(argc, argv, "--operators", 2000), count = option(argc, argv, "--rounds", 21);
  at::set_num_threads(1);
  const at::Tensor x = at::randn({4}).requires_grad_();
  const auto chain = [&] {
    at::Tensor y = x;
    for (int i = 0; i < operators; ++i) y = at::gelu(y);
    return y;
  };
  const CheapOperators none({"silu"}), all({"gelu"});
  const std::vector<gannet::bench::Contender> contenders = {{"libtorch", [&] { chain(); }},
                                                            {"interception",
                                                             [&] {
                                                               const gannet::zero::Interception armed;
                                                               chain();
                                                             }},
                                                            {"other_operators",
                                                             [&] {
                                                               const SelectiveRecomputation noting(none);
                                                               chain();
                                                             }},
                                                            {"listed_operators", [&] {
                                                               const SelectiveRecomputation noting(all);
                                                               chain();
                                                             }}};
  std::map<std::string, std::vector<double>> rounds;
  for (int round = 0; round <= count; ++round)
    for (const auto& contender : contenders) {
      const double start = cpu_seconds();
      contender.run();
      if (round > 0) rounds[contender.name].push_back(cpu_seconds() - start);
    }
  const auto above = [&](const char* name, const char* base) {
    return (gannet::bench::median(rounds.at(name)) - gannet::bench::median(rounds.at(base))) / operators * 1e6;
  };
  std::printf("libtorch %.3f us an operator\n", gannet::bench::median(rounds.at("libtorch")) / operators * 1e6);
  std::printf(
      "{\"figure\": \"noting\", \"interception_us\": %.3f, \"other_operators_us\": %.3f, \"listed_operators_us\": %.3f, "
      "\"noting_above_interception_us\": %.3f, \"bar\": 1}\n",
      above("interception", "libtorch"), above("other_operators", "libtorch"), above("listed_operators", "libtorch"),
      above("listed_operators", "interception"));
}
