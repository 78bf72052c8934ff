// A plugin's workspace in a simulated run.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kit/memory.h"

namespace gannet::kit {

class WorkMemory {
 public:
  // Contents differ in every call and every run, and are NaN as floats in every other call:
  // results must not depend on them.
  void* of(uint64_t bytes, bool is_tight) {
    buffer_ = bytes > 0 ? Buffer(bytes, "the workspace", is_tight) : Buffer();
    static std::atomic<uint64_t> calls{0};
    const uint64_t call = ++calls;
    if (bytes > 0) std::memset(buffer_.data(), call % 2 == 0 ? 0xff : static_cast<int>(call % 251), bytes);
    return buffer_.data();
  }
  const Buffer& buffer() const { return buffer_; }
  // Hands the memory over to a caller that forbids its address from then on.
  Buffer take() { return std::move(buffer_); }

 private:
  Buffer buffer_;  // the current call's
};

}  // namespace gannet::kit
