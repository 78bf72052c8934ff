#include "params/trace.h"

#include "base/hash.h"

namespace gannet::zero {

void Trace::end() {
  if (is_known_ || uses_.empty()) return;
  link();
  is_known_ = true;
}

void Trace::forget() {
  uses_.clear();
  first_.clear();
  last_.clear();
  total_ = 0;
  place_ = 0;
  is_known_ = false;
}

void Trace::begin() {
  end();
  place_ = 0;
  last_.assign(numels_->size(), kNone);
}

void Trace::link() {
  first_.assign(numels_->size(), kNone);
  total_ = 0;
  for (ParameterUse& use : uses_) {
    use.before = total_;
    total_ += (*numels_)[use.parameter];
  }
  for (size_t place = uses_.size(); place-- > 0;) {
    uses_[place].next = first_[uses_[place].parameter];
    first_[uses_[place].parameter] = place;
  }
}

bool Trace::use(size_t parameter) {
  bool as_before = true;
  if (is_known_ && (place_ >= uses_.size() || uses_[place_].parameter != parameter)) {
    as_before = false;
    is_known_ = false;
    uses_.resize(place_);
  }
  if (!is_known_) uses_.push_back({parameter, 0, kNone});
  last_[parameter] = place_++;
  return as_before;
}

uint64_t Trace::hash(uint64_t seed) const {
  for (const ParameterUse& use : uses_) seed = hash_combined(seed, use.parameter);
  return hash_combined(seed, uses_.size());
}

int64_t Trace::distance_to_next_use(size_t parameter) const {
  if (!is_known_) return kNever;
  const size_t last = last_[parameter];
  const size_t next = last == kNone ? first_[parameter] : uses_[last].next;
  const int64_t here = place_ < uses_.size() ? uses_[place_].before : total_;
  if (next != kNone && next >= place_) return uses_[next].before - here;
  if (!following_ || !following_->is_known_ || following_->first_[parameter] == kNone) return kNever;
  return total_ - here + following_->uses_[following_->first_[parameter]].before;
}

bool Trace::upcoming(size_t place, size_t* parameter) const {
  if (!is_known_) return false;
  const size_t at = place_ + place;
  if (at < uses_.size()) {
    *parameter = uses_[at].parameter;
    return true;
  }
  const size_t beyond = at - uses_.size();
  if (!following_ || !following_->is_known_ || beyond >= following_->uses_.size()) return false;
  *parameter = following_->uses_[beyond].parameter;
  return true;
}

}  // namespace gannet::zero
