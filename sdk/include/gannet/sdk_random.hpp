/// Per-element random numbers for rules that need them: stochastic rounding, noise. Part of the
/// SDK; rules include it themselves.
///
///   uint64_t capabilities() const { return GANNET_OPTIMIZER_ELEMENTWISE | GANNET_OPTIMIZER_USES_SEED; }
///   void update(const gannet_update_args& args) {
///     for (uint64_t s = 0; s < args.segment_count; ++s) {
///       const gannet_segment& part = segment(args, s);
///       const ElementRandom random(args, part);
///       for (uint64_t i = part.offset; i < part.offset + part.numel; ++i) ... random.uniform(i) ...
///
/// A number is a function of the run's seed (the config's gannet.seed), the step, the tensor and
/// the element's index in it. So the results do not depend on the number of ranks, the ZeRO stage,
/// the pieces or the threads, and a resumed run gets the same bits.
#pragma once

#include <gannet/abi.h>

#include <cstdint>
#include <cstring>

#if GANNET_TARGET_MINOR >= 1

namespace gannet::sdk {

/// Mixes the bits, so that every bit of the result depends on every bit of the input: one step of
/// SplitMix64, the increment and the finalizer (Steele, Lea, Flood 2014).
constexpr uint64_t mixed_bits(uint64_t bits) {
  bits += 0x9e3779b97f4a7c15u;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
  return bits ^ (bits >> 31);
}

/// Random numbers for the elements of one segment in one step.
class ElementRandom {
 public:
  /// `stream` is 0, 1 ... for rules that need several numbers per element.
  ElementRandom(const gannet_update_args& args, const gannet_segment& segment, uint64_t stream = 0)
      : key_(mixed_bits(args.seed ^ mixed_bits(segment.seed + stream))), first_(segment.tensor_offset - segment.offset) {}
  /// Returns 64 random bits. `i` is the element's index in the piece, as in args.param.
  uint64_t bits(uint64_t i) const { return mixed_bits(key_ ^ mixed_bits(first_ + i)); }
  /// Returns a multiple of 2^-53 in [0, 1).
  double uniform(uint64_t i) const { return static_cast<double>(bits(i) >> 11) * 0x1p-53; }

 private:
  uint64_t key_, first_;
};

/// Rounds `value` stochastically to bfloat16: to one of its two neighbours, with probabilities that
/// make the mean equal to the value. Infinity and NaN are kept. Only the lowest 16 bits of `random`
/// are used.
inline uint16_t stochastic_bfloat16(float value, uint64_t random) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  const bool is_special = (bits & 0x7f800000u) == 0x7f800000u;
  const uint32_t quiet = (bits & 0x007fffffu) != 0 ? bits | 0x00400000u : bits;
  return static_cast<uint16_t>((is_special ? quiet : bits + static_cast<uint32_t>(random & 0xffff)) >> 16);
}

}  // namespace gannet::sdk

#endif  // GANNET_TARGET_MINOR
