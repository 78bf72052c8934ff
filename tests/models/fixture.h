// A folder of tests/models/: a model as transformers saved it, and what transformers computed with it (make_fixtures.py).
#pragma once

#include <gannet/models/gpt2.h>
#include <gannet/safetensors.h>

#include <map>
#include <string>
#include <vector>

namespace fixture {

inline std::string folder(const std::string& name) { return std::string(GANNET_SOURCE_DIR) + "/tests/models/" + name; }

struct Expected {
  explicit Expected(const std::string& name, const std::string& file = "expected")
      : tensors(gannet::load_safetensors(folder(name) + "/" + file + ".safetensors")) {}
  const at::Tensor& operator[](const std::string& key) const { return tensors.at(key); }
  std::vector<int64_t> text(const std::string& key) const {
    const at::Tensor& values = tensors.at(key);
    return {values.const_data_ptr<int64_t>(), values.const_data_ptr<int64_t>() + values.numel()};
  }
  // "greedy", "beams", "prompt"
  gannet::TokenLists texts(const std::string& key) const {
    gannet::TokenLists all;
    for (int i = 0; tensors.count(key + "." + std::to_string(i)); ++i) all.push_back(text(key + "." + std::to_string(i)));
    return all;
  }
  std::map<std::string, at::Tensor> tensors;
};

// As many as the fixtures' texts have at most.
inline constexpr int64_t kNewTokens = 12;
inline constexpr int64_t kBeams = 3;

}  // namespace fixture
