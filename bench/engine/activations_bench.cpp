// Cost of keeping activations on a tier: 8 blocks of width 1,024, 2,048 tokens per step, fp32, one
// engine per variant. Either nothing is recomputed, and the tensors that operators save stay in
// place, go to host memory or go to a drive; or each block is recomputed, and its input stays in
// place, goes to host memory or goes to a drive. The optimizer is stateless SGD, so that the
// step costs next to nothing. Ratios of times are inverse ratios of tokens per second.
//
//   activations_bench FOLDER [--rounds 7] [--what keep|inputs] [--tokens 2048] [--length 512]
#include <ATen/Context.h>
#include <ATen/ops/randint.h>
#include <gannet/gannet.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "common/rounds.h"
#include "model.h"

namespace {

using gannet::Dict;

const char* option(int argc, char** argv, const char* name, const char* fallback) {
  for (int i = 2; i + 1 < argc; ++i)
    if (!std::strcmp(argv[i], name)) return argv[i + 1];
  return fallback;
}

struct Way {
  std::string name;
  Dict section, own;  // activation_checkpointing, and Gannet's block of that name
  double bar;         // required tokens per second, relative to the first variant
};

void compare(const std::string& figure, const std::vector<Way>& ways, int64_t tokens_per_step, int64_t length, int rounds) {
  gpt2::GptOptions size;
  size.width = 1024;
  size.layers = 8;
  size.heads = 16;
  size.positions = length;
  const at::Tensor tokens = at::randint(size.vocabulary, {tokens_per_step / length, length}, at::kLong);
  const at::Tensor targets = at::randint(size.vocabulary, {tokens_per_step / length, length}, at::kLong);
  std::vector<std::shared_ptr<gannet::Engine<gpt2::GptImpl>>> engines;
  std::vector<gannet::bench::Contender> contenders;
  for (const Way& way : ways) {
    at::manual_seed(1);
    const Dict config{{"train_micro_batch_size_per_gpu", tokens_per_step / length},
                      {"activation_checkpointing", way.section},
                      {"gannet", Dict{{"activation_checkpointing", way.own}}},
                      {"optimizer", Dict{{"type", "SGD"}, {"params", Dict{{"lr", 1e-6}}}}}};
    engines.push_back(gannet::initialize(gpt2::Gpt(size), {.config = config}).engine);
    contenders.push_back({way.name, [engine = engines.back().get(), &tokens, &targets] {
                            engine->backward(engine->forward(tokens, targets));
                            engine->step();
                          }});
  }
  const gannet::bench::Rounds times = gannet::bench::alternate(contenders, rounds);
  for (size_t i = 1; i < ways.size(); ++i)
    gannet::bench::print_figure(
        figure, times, ways.front().name, ways[i].name,
        {{"tokens_per_second", static_cast<double>(tokens_per_step) / gannet::bench::median(times.at(ways[i].name))},
         {"bar", ways[i].bar}});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "activations_bench FOLDER [--rounds 7] [--what keep|inputs] [--tokens 2048] [--length 512]\n");
    return 2;
  }
  const std::string folder = argv[1], what = option(argc, argv, "--what", "");
  const int rounds = std::atoi(option(argc, argv, "--rounds", "7"));
  const int64_t tokens = std::atoll(option(argc, argv, "--tokens", "2048")),
                length = std::atoll(option(argc, argv, "--length", "512"));
  if (what != "inputs")
    compare("saved_tensors_on_a_tier",
            {{"kept", {}, {}, 1},
             {"on_cpu", {}, Dict{{"keep", "cpu"}}, 0.9},
             {"on_nvme", {}, Dict{{"keep", "nvme"}, {"nvme_path", folder}}, 0.8}},
            tokens, length, rounds);
  if (what != "keep")
    compare("inputs_on_a_tier",
            {{"recomputed", {}, Dict{{"interval", 1}}, 1},
             {"inputs_on_cpu", Dict{{"cpu_checkpointing", true}}, Dict{{"interval", 1}}, 0.97},
             {"inputs_on_nvme", Dict{{"cpu_checkpointing", true}},
              Dict{{"interval", 1}, {"device", "nvme"}, {"nvme_path", folder}}, 0.9}},
            tokens, length, rounds);
}
