// The calling thread's floating-point environment: the rounding mode, the handling of denormals,
// and which exceptions trap. Reading it takes a few cycles, so it is cheap enough to read around
// every call of foreign code.
//
//   const auto before = FloatEnvironment::now();
//   foreign();
//   if (FloatEnvironment::now() != before) before.restore();
#pragma once

#include <cstdint>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <cfenv>
#endif

namespace gannet {

class FloatEnvironment {
 public:
#if defined(__x86_64__)
  static FloatEnvironment now() {
    FloatEnvironment found;
    uint32_t mxcsr;
    __asm__ volatile("stmxcsr %0" : "=m"(mxcsr));
    __asm__ volatile("fnstcw %0" : "=m"(found.x87_));
    found.control_ = mxcsr & ~uint32_t{0x3f};  // without the exception flags, which any operation may set
    return found;
  }
  void restore() const {
    const auto mxcsr = static_cast<uint32_t>(control_);
    __asm__ volatile("ldmxcsr %0" : : "m"(mxcsr));
    __asm__ volatile("fldcw %0" : : "m"(x87_));
  }
  bool flushes_denormals() const { return (control_ & 0x8040) != 0; }
  bool rounds_to_nearest() const { return (control_ & 0x6000) == 0 && (x87_ & 0x0c00) == 0; }
#elif defined(__aarch64__)
  static FloatEnvironment now() {
    FloatEnvironment found;
    __asm__ volatile("mrs %0, fpcr" : "=r"(found.control_));
    return found;
  }
  void restore() const { __asm__ volatile("msr fpcr, %0" : : "r"(control_)); }
  bool flushes_denormals() const { return (control_ & (uint64_t{1} << 24)) != 0; }
  bool rounds_to_nearest() const { return (control_ & (uint64_t{3} << 22)) == 0; }
#else
  static FloatEnvironment now() {
    FloatEnvironment found;
    found.control_ = static_cast<uint64_t>(std::fegetround());
    return found;
  }
  void restore() const { std::fesetround(static_cast<int>(control_)); }
  bool flushes_denormals() const { return false; }
  bool rounds_to_nearest() const { return control_ == FE_TONEAREST; }
#endif
  bool operator==(const FloatEnvironment&) const = default;

 private:
  uint64_t control_ = 0;
  uint16_t x87_ = 0;  // the x87 control word; `long double` is computed on the x87 unit
};

}  // namespace gannet
