// A synthetic image dataset: one of ten shapes at a random position, size and contrast, with noise.
#pragma once

#include <torch/torch.h>

#include <cmath>
#include <cstdint>
#include <random>

/// Image `index` depends only on `seed` and `index`, so every epoch, rank and run sees the same
/// images, and several loader workers may generate images concurrently. Its class is index % 10.
class Shapes : public torch::data::datasets::Dataset<Shapes> {
 public:
  static constexpr int64_t kClasses = 10, kSide = 20;

  Shapes(size_t count, uint64_t seed) : count_(count), seed_(seed) {}

  std::optional<size_t> size() const override { return count_; }

  torch::data::Example<> get(size_t index) override {
    std::mt19937_64 generator(seed_ * 1'000'003 + index);
    auto uniform = [&](float low, float high) { return low + (high - low) * static_cast<float>(generator() >> 40) * 0x1p-24f; };
    const auto label = static_cast<int64_t>(index % kClasses);
    const float x = uniform(8, 12), y = uniform(8, 12), radius = uniform(4, 7), contrast = uniform(0.5f, 1.5f);

    torch::Tensor image = torch::empty({1, kSide, kSide});  // [channel, row, column] fp32
    float* pixel = image.data_ptr<float>();
    for (int64_t row = 0; row < kSide; ++row)
      for (int64_t column = 0; column < kSide; ++column) {
        const float u = (static_cast<float>(column) - x) / radius, v = (static_cast<float>(row) - y) / radius;
        *pixel++ = (inside(label, u, v) ? contrast : 0) + uniform(-0.6f, 0.6f);
      }
    return {image, torch::tensor(label)};
  }

 private:
  // Whether the point (u, v) belongs to the shape of this class, drawn with radius 1 around (0, 0).
  static bool inside(int64_t label, float u, float v) {
    const float width = 0.2f, across = std::abs(u - v) * 0.7f, along = std::abs(u + v) * 0.7f;  // distances from the diagonals
    const float box = std::max(std::abs(u), std::abs(v)), circle = std::sqrt(u * u + v * v);
    if (box > 1) return false;
    switch (label) {
      case 0:
        return std::abs(v) < width;  // -
      case 1:
        return std::abs(u) < width;  // |
      case 2:
        return across < width;  // backslash
      case 3:
        return along < width;  // slash
      case 4:
        return std::min(std::abs(u), std::abs(v)) < width;  // +
      case 5:
        return std::min(across, along) < width;  // x
      case 6:
        return box > 1 - 2 * width;  // a frame
      case 7:
        return circle < 1 && circle > 1 - 2 * width;  // a ring
      case 8:
        return circle < 1;  // a disc
      default:
        return std::abs(u) + std::abs(v) < 1;  // a diamond
    }
  }

  size_t count_;
  uint64_t seed_;
};
