// The host in the place of a device, for optimizers whose kernels are written for one (optimizers/device/team.h): a kernel is run
// block by block, each of its threads in a loop. What this shows of a kernel is all but the launch itself: its indices, its sums,
// its formulas, and that no thread reads what another one writes between two barriers, since the threads run in the order that
// the variable GANNET_HOSTED_THREADS says, "forward" or "backward" or, by default, either in turns.
#pragma once

#include <gannet/elementwise/scalar.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <gannet/sdk_float16.hpp>
#include <memory>
#include <string>
#include <vector>

#include "optimizers/device/part.h"

namespace gannet::rules {
namespace hosted {
#include <gannet/elementwise/plain-inl.h>
}  // namespace hosted

class Hosted {
 public:
  using BFloat16 = sdk::BFloat16;
  using Half = sdk::Float16;
  static float widen(float value) { return value; }
  static double widen(double value) { return value; }
  static float widen(BFloat16 value) { return value; }
  static float widen(Half value) { return value; }
  template <class Out>
  static void narrow(float value, Out& to) {
    to = Out(value);
  }
  static int to_integer(float value) { return static_cast<int>(std::nearbyint(value)); }
  static float copy_sign(float magnitude, float sign) { return std::copysign(magnitude, sign); }

  template <unsigned kThreads>
  struct Team {
    template <class T>
    struct PerThread {
      std::vector<T> values = std::vector<T>(kThreads);
      T& operator[](unsigned t) { return values.at(t); }
    };
    template <class Body>
    void each(Body&& body) const {
      if (next_is_forward())
        for (unsigned t = 0; t < kThreads; ++t) body(t);
      else
        for (unsigned t = kThreads; t > 0; --t) body(t - 1);
    }
    static bool next_is_forward() {
      static bool is_forward = false;
      const char* given = std::getenv("GANNET_HOSTED_THREADS");
      const std::string order = given ? given : "";
      is_forward = order == "forward" || (order != "backward" && !is_forward);
      return is_forward;
    }
  };

  class Work {
   public:
    Work(Hosted& hosted, const gannet_update_args&) : hosted_(hosted) {
      for (Buffer& buffer : hosted_.buffers_) buffer.poison();
    }
    template <class T>
    T* memory(size_t slot, uint64_t count) {
      if (slot >= hosted_.buffers_.size()) hosted_.buffers_.resize(slot + 1);
      Buffer& buffer = hosted_.buffers_[slot];
      if (count * sizeof(T) > buffer.bytes) {
        buffer.bytes = count * sizeof(T);
        buffer.data = std::make_unique<Line[]>(buffer.bytes / sizeof(Line) + 2);  // a canary behind it
        buffer.poison();
      }
      return reinterpret_cast<T*>(buffer.data.get());
    }
    template <class Kernel>
    void run(const Kernel& kernel, uint64_t blocks) {
      const Team<Kernel::kThreads> team;
      for (uint64_t block = 0; block < blocks; ++block) {
        typename Kernel::Shared shared;
        std::memset(static_cast<void*>(&shared), 0xff, sizeof(shared));  // not a number
        kernel(team, block, shared);
      }
      for (const Buffer& buffer : hosted_.buffers_)
        if (!buffer.is_sound()) throw sdk::Failure(GANNET_INTERNAL, "a kernel wrote behind the end of the optimizer's memory");
    }
    template <class Rule>
    void each(const Rule& rule, const gannet_update_args& args) {
      hosted::run_elementwise(rule, args, 0, args.numel, gannet_segment{});
    }
    template <class T>
    void to_device(T* to, const T* from, uint64_t count) {
      if (count > 0) std::memcpy(static_cast<void*>(to), from, count * sizeof(T));
    }
    template <class T>
    void to_host(T* to, const T* from, uint64_t count) {
      to_device(to, from, count);
    }

   private:
    Hosted& hosted_;
  };

 private:
  struct alignas(64) Line {
    unsigned char bytes[64];
  };
  struct Buffer {
    std::unique_ptr<Line[]> data;
    uint64_t bytes = 0;
    unsigned char* end() const { return reinterpret_cast<unsigned char*>(data.get()) + bytes; }
    void poison() {
      if (data) std::memset(static_cast<void*>(data.get()), 0xff, bytes + sizeof(Line));
    }
    bool is_sound() const {
      if (!data) return true;
      for (size_t i = 0; i < sizeof(Line); ++i)
        if (end()[i] != 0xff) return false;
      return true;
    }
  };
  std::vector<Buffer> buffers_;
};

}  // namespace gannet::rules
