#include "generate.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace gpt2 {

std::vector<int64_t> generate(const NextLogits& next_logits, int64_t positions, std::vector<int64_t> prompt, int64_t count,
                              uint64_t seed) {
  constexpr double kTemperature = 0.8;
  constexpr int64_t kCandidates = 40;
  at::NoGradGuard no_grad;
  auto generator = at::detail::createCPUGenerator(seed);
  std::vector<int64_t> tokens = std::move(prompt);
  const size_t first = tokens.size();
  for (int64_t i = 0; i < count; ++i) {
    const auto seen = std::min<int64_t>(tokens.size(), positions);
    const at::Tensor context = at::tensor(at::ArrayRef<int64_t>(tokens.data() + tokens.size() - seen, seen)).unsqueeze(0);
    const at::Tensor logits = next_logits(context)[0].to(at::kCPU, at::kFloat).div_(kTemperature);  // shape [vocabulary]
    const auto [likeliest, ids] = logits.topk(std::min(kCandidates, logits.size(0)));
    tokens.push_back(ids[at::multinomial(likeliest.softmax(0), 1, false, generator).item<int64_t>()].item<int64_t>());
  }
  return {tokens.begin() + static_cast<std::ptrdiff_t>(first), tokens.end()};
}

std::string to_text(const std::vector<int64_t>& tokens, int64_t vocabulary) {
  std::string text;
  for (int64_t token : tokens) {
    if (vocabulary != 256)
      text += std::to_string(token) + ' ';
    else
      text += (token >= 32 && token < 127) || token == '\n' || token == '\t' ? static_cast<char>(token) : '?';
  }
  return text;
}

}  // namespace gpt2
