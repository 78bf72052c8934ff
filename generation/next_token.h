// Chooses the next token of each row: the most likely one, or one drawn at random.
//
//   NextToken next(options, rows);
//   std::vector<int64_t> tokens = next(logits);     // [rows, vocabulary] fp32 on the CPU
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <gannet/generate.h>

#include <random>
#include <vector>

namespace gannet::generation {

class NextToken {
 public:
  NextToken(const GenerateOptions& options, size_t rows);
  std::vector<int64_t> operator()(const at::Tensor& logits);

 private:
  int64_t draw(size_t row, const at::Tensor& logits);  // [vocabulary]

  const GenerateOptions& options_;
  std::vector<std::mt19937_64> random_;  // one generator per row; empty unless tokens are drawn
};

}  // namespace gannet::generation
