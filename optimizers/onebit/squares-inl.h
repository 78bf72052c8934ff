// Sums of squares of fp32 numbers, 16 elements at a time. Compiled once per SIMD target: include it
// after <gannet/sdk_elementwise.hpp>.
#if defined(GANNET_ONEBIT_SQUARES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GANNET_ONEBIT_SQUARES_INL_H_
#undef GANNET_ONEBIT_SQUARES_INL_H_
#else
#define GANNET_ONEBIT_SQUARES_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace gannet::rules::HWY_NAMESPACE {

// Squares are added in double, in which squares of fp32 numbers are exact. Element i is always
// added to sum i % kGroup, whatever the vector width. A group corresponds to two bytes of bits.
constexpr size_t kGroup = 16;
using Wide = hn::CappedTag<double, 8>;
using Narrow = hn::Rebind<float, Wide>;
constexpr size_t kWidth = hn::MaxLanes(Wide());
constexpr size_t kVectors = kGroup / kWidth;

class Squares {
 public:
  HWY_INLINE Squares() {
    for (auto& sum : sums_) sum = hn::Zero(Wide());
  }
  HWY_INLINE void add(size_t vector, hn::Vec<Narrow> values) {
    const auto wide = hn::PromoteTo(Wide(), values);
    sums_[vector] = hn::MulAdd(wide, wide, sums_[vector]);
  }
  HWY_INLINE double total() const {
    double lanes[kGroup], sum = 0;
    for (size_t v = 0; v < kVectors; ++v) hn::StoreU(sums_[v], Wide(), lanes + v * kWidth);
    for (const double lane : lanes) sum += lane;
    return sum;
  }

 private:
  hn::Vec<Wide> sums_[kVectors];
};

}  // namespace gannet::rules::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
