#include "clocks.h"

#include <algorithm>

namespace gannet::accelerators::checked {

void Clock::join(const Clock& other) {
  if (ticks_.size() < other.ticks_.size()) ticks_.resize(other.ticks_.size());
  for (size_t i = 0; i < other.ticks_.size(); ++i) ticks_[i] = std::max(ticks_[i], other.ticks_[i]);
}

uint64_t Clock::advance(uint32_t actor) {
  if (ticks_.size() <= actor) ticks_.resize(actor + 1);
  return ++ticks_[actor];
}

}  // namespace gannet::accelerators::checked
