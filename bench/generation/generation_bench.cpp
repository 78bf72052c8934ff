// generate() with the key-value cache compared with generate() without it: 256 greedy tokens after
// a prompt of 8, from a Llama of 36M parameters in fp32. Both generate the same text.
//
//   generation_bench [ROUNDS] [TOKENS]
#include <ATen/Context.h>
#include <gannet/generate.h>
#include <gannet/models/llama.h>

#include <cstdlib>

#include "common/rounds.h"

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 5;
  const int64_t tokens = argc > 2 ? std::atoi(argv[2]) : 256;
  at::manual_seed(1);
  gannet::models::LlamaConfig size;
  size.vocab_size = 8192;
  size.hidden_size = 512;
  size.intermediate_size = 1536;
  size.num_hidden_layers = 8;
  size.num_attention_heads = 8;
  const gannet::models::Llama model(size);
  int64_t parameters = 0;
  for (const at::Tensor& parameter : model->parameters()) parameters += parameter.numel();

  const gannet::TokenLists prompts = {{1, 2, 3, 4, 5, 6, 7, 8}};
  gannet::TokenLists with, without;
  const auto timed = gannet::bench::alternate(
      {{"with", [&] { with = gannet::generate(model, prompts, {.max_new_tokens = tokens}); }},
       {"without", [&] { without = gannet::generate(model, prompts, {.max_new_tokens = tokens, .use_cache = false}); }}},
      rounds);
  if (with != without || static_cast<int64_t>(with[0].size()) != tokens) {
    std::printf("the texts differ\n");
    return 1;
  }
  gannet::bench::print_figure(
      "generate_with_cache", timed, "with", "without",
      {{"tokens", static_cast<double>(tokens)}, {"parameters", static_cast<double>(parameters)}, {"bar", 0.2}});
}
