// Scalar<T>: one element, with the arithmetic for rules. There is no include guard, because the
// file is compiled for each target of the plain loop, in that target's namespace. See scalar.h.
//
// HIP's own functions with these names come from a device library, and its older versions do not
// support newer GPUs; the compiler's builtins are one instruction each.

template <class T>
struct Scalar {
  using Number = T;
  T value;
  Scalar() = default;
  GANNET_DEVICE Scalar(T number) : value(number) {}
  friend GANNET_DEVICE Scalar operator+(Scalar a, Scalar b) { return a.value + b.value; }
  friend GANNET_DEVICE Scalar operator-(Scalar a, Scalar b) { return a.value - b.value; }
  friend GANNET_DEVICE Scalar operator*(Scalar a, Scalar b) { return a.value * b.value; }
  friend GANNET_DEVICE Scalar operator/(Scalar a, Scalar b) { return a.value / b.value; }
  friend GANNET_DEVICE Scalar operator-(Scalar a) { return -a.value; }
  GANNET_DEVICE Scalar& operator+=(Scalar b) { return *this = *this + b; }
  GANNET_DEVICE Scalar& operator-=(Scalar b) { return *this = *this - b; }
  GANNET_DEVICE Scalar& operator*=(Scalar b) { return *this = *this * b; }
  GANNET_DEVICE Scalar& operator/=(Scalar b) { return *this = *this / b; }
  friend GANNET_DEVICE bool operator<(Scalar a, Scalar b) { return a.value < b.value; }
  friend GANNET_DEVICE bool operator>(Scalar a, Scalar b) { return a.value > b.value; }
  friend GANNET_DEVICE bool operator<=(Scalar a, Scalar b) { return a.value <= b.value; }
  friend GANNET_DEVICE bool operator>=(Scalar a, Scalar b) { return a.value >= b.value; }
  friend GANNET_DEVICE bool operator==(Scalar a, Scalar b) { return a.value == b.value; }
  friend GANNET_DEVICE bool operator!=(Scalar a, Scalar b) { return a.value != b.value; }
  friend GANNET_DEVICE Scalar select(bool condition, Scalar a, Scalar b) { return condition ? a.value : b.value; }
  friend GANNET_DEVICE Scalar max(Scalar a, Scalar b) { return a.value > b.value ? a.value : b.value; }
  friend GANNET_DEVICE Scalar min(Scalar a, Scalar b) { return a.value < b.value ? a.value : b.value; }
  friend GANNET_DEVICE Scalar abs(Scalar a) {
    if constexpr (sizeof(T) == 4)
      return __builtin_fabsf(a.value);
    else
      return __builtin_fabs(a.value);
  }
  friend GANNET_DEVICE Scalar sqrt(Scalar a) {
#ifdef __CUDACC__
    return ::sqrt(a.value);
#else
    if constexpr (sizeof(T) == 4)
      return __builtin_sqrtf(a.value);
    else
      return __builtin_sqrt(a.value);
#endif
  }
  // Returns a * b + c, rounded once.
  friend GANNET_DEVICE Scalar fma(Scalar a, Scalar b, Scalar c) {
#ifdef __CUDACC__
    return ::fma(a.value, b.value, c.value);
#else
    if constexpr (sizeof(T) == 4)
      return __builtin_fmaf(a.value, b.value, c.value);
    else
      return __builtin_fma(a.value, b.value, c.value);
#endif
  }
};

// Random numbers for an element, for rules with kUsesSeed; LaneRandom has the same for lanes.
template <class T>
struct ScalarRandom {
  using V = Scalar<T>;
  using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  Bits bits;
  // Uniform in [0, 1): a multiple of 2^-23 in fp32, of 2^-52 in fp64.
  GANNET_DEVICE V uniform() const {
    constexpr int kMantissa = sizeof(T) == 8 ? 52 : 23;
    const Bits one = sizeof(T) == 8 ? static_cast<Bits>(uint64_t{0x3ff} << 52) : static_cast<Bits>(0x3f800000u);
    const Bits shifted = static_cast<Bits>(bits >> (8 * sizeof(T) - kMantissa)) | one;
    T value;
    __builtin_memcpy(&value, &shifted, sizeof(T));
    return V(value - 1);
  }
  // Rounds x stochastically to bfloat16: the mean is x. Infinity, NaN and fp64 values are kept.
  GANNET_DEVICE V bfloat16(V x) const {
    if constexpr (sizeof(T) == 4) {
      uint32_t value;
      __builtin_memcpy(&value, &x.value, sizeof(T));
      if ((value & 0x7f800000u) != 0x7f800000u) value = (value + (bits & 0xffffu)) & 0xffff0000u;
      __builtin_memcpy(&x.value, &value, sizeof(T));
    }
    return x;
  }
};

#include <gannet/elementwise/term-inl.h>
