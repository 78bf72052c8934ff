// Newton-Schulz arithmetic on the CPU.
#pragma once

#include "optimizers/muon/product.h"
#include "optimizers/muon/scratch.h"

namespace gannet::rules {

class HostArithmetic {
 public:
  explicit HostArithmetic(const sdk::HostServices& host) : host_(host), multiply_(host) {}
  float* floats(size_t slot, uint64_t count) { return memory_[slot].floats(count); }
  void multiply(const Product& product) { multiply_(product); }
  void add_to_diagonal(const float* z, uint64_t n, float a, float* q) {
    host_.parallel_for(n, 64, [&](uint64_t begin, uint64_t end) {
      for (uint64_t i = begin; i < end; ++i) {
        for (uint64_t j = 0; j < n; ++j) q[i * n + j] = z[i * n + j];
        q[i * n + i] += a;
      }
    });
  }

 private:
  sdk::HostServices host_;
  Multiplier multiply_;
  Scratch memory_[5];
};

}  // namespace gannet::rules
