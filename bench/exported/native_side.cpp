// The C++ sides of exported_bench.py: one GPT-2 as an exported graph and written in C++ three times, with the same weights. Reads
// commands from standard input and answers each by a line:
//
//   native_side EXPORTED_FOLDER HUGGING_FACE_FOLDER
//   exported 2 8 50      ->  WALL_SECONDS CPU_SECONDS LOSS NORM_OF_THE_GRADIENT    of 50 forward and backward passes of 2 x 8
//   tokens
//
// The sides are `exported`, `same` (same_operators.h: the graph's operators, one for one), `example` (examples/gpt2 with plain
// operators, without a tensor for the causal mask), `models` (gannet::models::Gpt2, whose GELU is one operator).
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <gannet/exported.h>
#include <gannet/models/gpt2.h>
#include <gannet/pretrained.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "model_io.h"
#include "same_operators.h"

namespace {

using at::Tensor;

double cpu_seconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double wall_seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Side {
  std::function<Tensor(const Tensor& tokens)> loss;
  std::vector<Tensor> parameters;
  int64_t vocabulary;
};

// The tokens that eager_side.py makes.
Tensor tokens_of(int64_t rows, int64_t length, int64_t vocabulary) {
  return (at::arange(rows * length) * 7 + 3).remainder(vocabulary).view({rows, length});
}

void answer(Side& side, int64_t rows, int64_t length, int64_t count) {
  const Tensor tokens = tokens_of(rows, length, side.vocabulary);
  double wall = 0, cpu = 0;
  Tensor loss;
  for (int64_t i = 0; i < count; ++i) {
    for (Tensor& parameter : side.parameters) parameter.mutable_grad().reset();
    loss = Tensor();
    const double wall_before = wall_seconds(), cpu_before = cpu_seconds();
    loss = side.loss(tokens);
    loss.backward();
    cpu += cpu_seconds() - cpu_before;
    wall += wall_seconds() - wall_before;
  }
  double squares = 0;
  for (const Tensor& parameter : side.parameters)
    if (parameter.grad().defined()) squares += std::pow(at::linalg_vector_norm(parameter.grad()).item<double>(), 2);
  std::printf("%.9f %.9f %.9g %.9g\n", wall, cpu, loss.item<double>(), std::sqrt(squares));
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) {
    std::fprintf(stderr, "usage: native_side EXPORTED_FOLDER HUGGING_FACE_FOLDER\n");
    return 2;
  }
  at::set_num_threads(1);
  const auto exported = gannet::from_pretrained<gannet::ExportedModule>(arguments[1], {});
  const auto models = gannet::from_pretrained<gannet::models::Gpt2>(arguments[2], {});
  auto example = gpt2::load_model(arguments[2], /*plain_operators=*/true).model;
  const int64_t vocabulary = models->config().vocab_size;
  std::map<std::string, Tensor> by_name;
  for (const auto& one : exported->named_parameters()) by_name[one.key()] = one.value();
  const same_operators::Gpt2 same(by_name, models->config().n_head);
  // In the example a target is the token after its own; Hugging Face's labels are shifted by the model.
  const auto next = [](const Tensor& tokens) { return at::constant_pad_nd(tokens.slice(1, 1), {0, 1}, -100).contiguous(); };
  std::map<std::string, Side> sides{
      {"exported",
       {[&](const Tensor& tokens) { return exported->forward(gannet::NamedBatch{{"input_ids", tokens}, {"labels", tokens}}); },
        exported->parameters(), vocabulary}},
      {"same", {[&](const Tensor& tokens) { return same.forward(tokens, tokens); }, exported->parameters(), vocabulary}},
      {"example",
       {[&](const Tensor& tokens) { return example->forward(tokens, next(tokens)); }, example->parameters(), vocabulary}},
      {"models", {[&](const Tensor& tokens) { return models->forward(tokens, tokens); }, models->parameters(), vocabulary}}};
  exported->train();
  models->train();
  example->train();
  std::string name;
  int64_t rows = 0, length = 0, times = 0;
  while (std::cin >> name >> rows >> length >> times) answer(sides.at(name), rows, length, times);
}
