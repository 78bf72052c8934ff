#include <gannet/exported.h>
#include <gannet/models/gpt2.h>
#include <gannet/trial.h>

#include <cstdio>

int main() {
  if (!gannet::ExportedConfig().graphs().empty()) return 1;
  const gannet::models::Gpt2 model(
      gannet::models::Gpt2Config{.vocab_size = 32, .n_positions = 16, .n_embd = 8, .n_layer = 1, .n_head = 2});
  const auto texts = gannet::generate(model, {{1, 2, 3}}, {.max_new_tokens = 5});
  const gannet::Hparams hparams(gannet::Dict{{"seen", static_cast<int64_t>(texts[0].size())}});
  std::printf("%d tokens\n", hparams.get<int>("seen"));
}
