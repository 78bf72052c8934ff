// One optimizer's buffers, in any of the types that the fused pass takes, with values that a test can predict.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstring>
#include <random>

#include "optimizers/loaded_plugin.h"

namespace gannet::test {

struct Types {
  uint32_t param, grad, out;
};
inline const std::vector<Types> kAllTypes = {
    {GANNET_FLOAT32, GANNET_FLOAT32, GANNET_DTYPE_NONE}, {GANNET_FLOAT32, GANNET_FLOAT32, GANNET_BFLOAT16},
    {GANNET_FLOAT32, GANNET_FLOAT32, GANNET_FLOAT16},    {GANNET_FLOAT32, GANNET_BFLOAT16, GANNET_DTYPE_NONE},
    {GANNET_FLOAT32, GANNET_BFLOAT16, GANNET_BFLOAT16},  {GANNET_FLOAT32, GANNET_BFLOAT16, GANNET_FLOAT16},
    {GANNET_FLOAT32, GANNET_FLOAT16, GANNET_DTYPE_NONE}, {GANNET_FLOAT32, GANNET_FLOAT16, GANNET_BFLOAT16},
    {GANNET_FLOAT32, GANNET_FLOAT16, GANNET_FLOAT16},    {GANNET_FLOAT64, GANNET_FLOAT64, GANNET_DTYPE_NONE}};

inline uint64_t bytes_of(uint32_t dtype) {
  switch (dtype) {
    case GANNET_FLOAT64:
    case GANNET_INT64:
      return 8;
    case GANNET_FLOAT32:
      return 4;
    case GANNET_INT8:
    case GANNET_UINT8:
      return 1;
    case GANNET_DTYPE_NONE:
      return 0;
    default:
      return 2;
  }
}

// [numel] numbers of some dtype.
class Buffer {
 public:
  Buffer(uint32_t dtype, uint64_t numel) : dtype_(dtype), bytes_(bytes_of(dtype) * numel) {}
  void* at(uint64_t i) { return bytes_.data() + i * bytes_of(dtype_); }
  double get(uint64_t i) const {
    const char* from = bytes_.data() + i * bytes_of(dtype_);
    switch (dtype_) {
      case GANNET_FLOAT64:
        return read<double>(from);
      case GANNET_FLOAT32:
        return read<float>(from);
      case GANNET_FLOAT16:
        return static_cast<float>(read<c10::Half>(from));
      case GANNET_INT8:
        return read<int8_t>(from);
      case GANNET_UINT8:
        return read<uint8_t>(from);
      case GANNET_INT64:
        return static_cast<double>(read<int64_t>(from));
      default:
        return static_cast<float>(read<c10::BFloat16>(from));
    }
  }
  void set(uint64_t i, double value) {
    switch (dtype_) {
      case GANNET_FLOAT64:
        return write(i, value);
      case GANNET_FLOAT32:
        return write(i, static_cast<float>(value));
      case GANNET_FLOAT16:
        return write(i, c10::Half(static_cast<float>(value)));
      case GANNET_INT8:
        return write(i, static_cast<int8_t>(value));
      case GANNET_UINT8:
        return write(i, static_cast<uint8_t>(value));
      case GANNET_INT64:
        return write(i, static_cast<int64_t>(value));
      default:
        return write(i, c10::BFloat16(static_cast<float>(value)));
    }
  }
  uint64_t element_bytes() const { return bytes_of(dtype_); }
  uint64_t count() const { return bytes_.size() / element_bytes(); }
  bool operator==(const Buffer&) const = default;

 private:
  template <class T>
  static T read(const char* from) {
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
  }
  template <class T>
  void write(uint64_t i, T value) {
    std::memcpy(at(i), &value, sizeof(T));
  }

  uint32_t dtype_;
  std::vector<char> bytes_;
};

struct UpdateCase {
  UpdateCase(Types types, uint64_t numel, size_t state_count, uint32_t seed = 1)
      : types(types), numel(numel), param(types.param, numel), grad(types.grad, numel), out(types.out, numel) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    for (uint64_t i = 0; i < numel; ++i) {
      param.set(i, normal(random));
      grad.set(i, normal(random));
    }
    for (size_t s = 0; s < state_count; ++s) {
      states.emplace_back(types.param, numel);
      for (uint64_t i = 0; i < numel; ++i) states[s].set(i, std::abs(normal(random)) * 0.1);
    }
  }
  // Updates elements [begin, end) in one call.
  void update(const OptimizerUnderTest& optimizer, uint64_t step, uint64_t begin, uint64_t end) {
    std::vector<void*> pointers;
    for (auto& state : states) pointers.push_back(state.at(begin));
    gannet_update_args args{};
    args.struct_size = sizeof(args);
    args.param_dtype = types.param;
    args.grad_dtype = types.grad;
    args.out_dtype = types.out;
    args.numel = end - begin;
    args.param = param.at(begin);
    args.grad = grad.at(begin);
    args.out = types.out == GANNET_DTYPE_NONE ? nullptr : out.at(begin);
    args.states = pointers.data();
    args.state_count = pointers.size();
    args.grad_scale = grad_scale;
    args.step = step;
    args.hyper = optimizer.params.hyper.data();
    args.hyper_count = optimizer.params.hyper.size();
    optimizer.update(args);
  }
  void update(const OptimizerUnderTest& optimizer, uint64_t step) { update(optimizer, step, 0, numel); }
  bool same_result(const UpdateCase& other) const { return param == other.param && out == other.out && states == other.states; }

  Types types;
  uint64_t numel;
  Buffer param, grad, out;
  std::vector<Buffer> states;
  double grad_scale = 1;
};

}  // namespace gannet::test
