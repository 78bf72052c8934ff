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
  friend GANNET_DEVICE bool operator<(Scalar a, Scalar b) { return a.value < b.value; }
  friend GANNET_DEVICE bool operator>(Scalar a, Scalar b) { return a.value > b.value; }
  friend GANNET_DEVICE bool operator==(Scalar a, Scalar b) { return a.value == b.value; }
  friend GANNET_DEVICE Scalar select(bool condition, Scalar a, Scalar b) { return condition ? a : b; }
  friend GANNET_DEVICE Scalar max(Scalar a, Scalar b) { return a.value > b.value ? a : b; }
  friend GANNET_DEVICE Scalar min(Scalar a, Scalar b) { return a.value < b.value ? a : b; }
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
