#include "params/residency.h"

#include <algorithm>

#include "base/format.h"
#include "base/hash.h"
#include "tensor/absent_storage.h"
#include "tensor/flat_buffer.h"

namespace gannet::zero {

Residency::Residency(ParameterSource& source, Limits limits)
    : source_(source), limits_(limits), forward_(&numels_), backward_(&numels_), evaluation_(&numels_) {
  forward_.set_following(&backward_);
}

Residency::~Residency() {
  for (size_t p = 0; p < residents_.size(); ++p) {
    if (residents_[p].state == State::kComing) source_.drop(p);
    take_bytes(*residents_[p].tensor.storage().unsafeGetStorageImpl(),
               formatted("parameter '{}' went with the engine that had its shards: keep the engine as long as its module is used",
                         residents_[p].name));
  }
}

size_t Residency::add(const std::string& name, const at::Tensor& parameter, const std::string& where, int64_t counted) {
  ResidentParameter resident;
  resident.name = name;
  resident.message = formatted("parameter '{}' {}", name, where);
  resident.tensor = parameter.detach();
  resident.numel = counted > 0 ? counted : parameter.numel();
  resident.bytes = source_.numel_to_gather(residents_.size()) * static_cast<int64_t>(parameter.element_size());
  take_bytes(*resident.tensor.storage().unsafeGetStorageImpl(), resident.message);
  numels_.push_back(resident.numel);
  for (Trace* trace : {&forward_, &backward_, &evaluation_}) trace->forget();
  residents_.push_back(std::move(resident));
  return residents_.size() - 1;
}

const char* Residency::stretch_name() const {
  return current_ == &forward_      ? "forward"
         : current_ == &backward_   ? "backward"
         : current_ == &evaluation_ ? "evaluation"
                                    : "a guard";
}

uint64_t Residency::known_order() const {
  if (!forward_.is_known() || !backward_.is_known()) return 0;
  uint64_t hash = backward_.hash(forward_.hash(0));
  for (const ResidentParameter& resident : residents_) hash = hash_combined(hash, static_cast<uint64_t>(resident.state));
  hash = hash_combined(hash, static_cast<uint64_t>(live_));
  return hash == 0 ? 1 : hash;
}

uint64_t Residency::order() const {
  std::lock_guard lock(mutex_);
  return known_order();
}

void Residency::begin(Pass pass) {
  std::lock_guard lock(mutex_);
  if (pass == Pass::kBackward && !forward_.is_followed()) leave_order();  // forward has ended earlier than before
  if (current_) current_->end();
  if (pass == Pass::kForward) in_batches_ = source_.begin_order(known_order());
  if (pass == Pass::kEvaluation) end_order();
  current_ = pass == Pass::kForward ? &forward_ : pass == Pass::kBackward ? &backward_ : &evaluation_;
  current_->begin();
  look_ahead();
}

void Residency::end() {
  std::lock_guard lock(mutex_);
  end_order();
  if (current_) current_->end();
  current_ = nullptr;
  for (size_t p = 0; p < residents_.size(); ++p)
    if (residents_[p].users == 0) send_away(p);
}

void Residency::acquire(const std::vector<size_t>& parameters) {
  std::lock_guard lock(mutex_);
  if (current_) {
    bool as_before = true;
    for (const size_t p : parameters) as_before = current_->use(p) && as_before;
    if (!as_before) leave_order();
    if (!as_before && tell_) {
      tell_(formatted("the order in which {} uses parameters has changed at '{}'; it is recorded again", stretch_name(),
                      residents_[parameters.front()].name));
      tell_ = nullptr;
    }
  }
  bring(parameters);
  look_ahead();
}

void Residency::hold(const std::vector<size_t>& parameters) {
  std::lock_guard lock(mutex_);
  leave_order();
  bring(parameters);
}

void Residency::leave_order() {
  in_batches_ = false;
  source_.leave_order();
}

void Residency::end_order() {
  in_batches_ = false;
  source_.end_order();
}

void Residency::bring(const std::vector<size_t>& parameters) {
  int64_t needed = 0;
  for (const size_t p : parameters) {
    ++residents_[p].users;  // counted first, so that none of them is evicted to make room for another
    if (residents_[p].state == State::kAway) needed += residents_[p].numel;
  }
  size_t done = 0;
  try {
    if (needed > 0) make_room(needed);
    for (const size_t p : parameters)
      if (residents_[p].state == State::kAway) start(p);
    source_.launch();
    for (; done < parameters.size(); ++done) {
      ResidentParameter& resident = residents_[parameters[done]];
      if (resident.state == State::kHere) continue;
      source_.finish(parameters[done]);
      ahead_ -= resident.numel;
      resident.state = State::kHere;
      give_bytes(*resident.tensor.storage().unsafeGetStorageImpl(), resident.memory.data_ptr());
    }
  } catch (...) {
    for (const size_t p : parameters) --residents_[p].users;
    throw;
  }
}

void Residency::release(const std::vector<size_t>& parameters) {
  std::lock_guard lock(mutex_);
  for (const size_t p : parameters) {
    ResidentParameter& resident = residents_[p];
    if (--resident.users > 0) continue;
    const bool is_soon = current_ && current_->distance_to_next_use(p) < limits_.reuse_distance && live_ <= limits_.live;
    if (!is_soon) send_away(p);
  }
}

std::string Residency::held() const {
  for (const ResidentParameter& resident : residents_)
    if (resident.users > 0) return resident.name;
  return "";
}

void Residency::store(size_t parameter) {
  std::lock_guard lock(mutex_);
  source_.keep(parameter, residents_[parameter].tensor);
}

void Residency::forget() {
  std::lock_guard lock(mutex_);
  for (size_t p = 0; p < residents_.size(); ++p)
    if (residents_[p].users == 0) send_away(p);
}

void Residency::start(size_t parameter) {
  ResidentParameter& resident = residents_[parameter];
  resident.memory = take_memory(resident);
  resident.state = State::kComing;
  live_ += resident.numel;
  ahead_ += resident.numel;
  live_bytes_ += resident.bytes;
  peak_bytes_ = std::max(peak_bytes_, live_bytes_);
  ++gathers_;
  source_.start(parameter, resident.memory.narrow(0, 0, resident.bytes).view(resident.tensor.scalar_type()));
}

void Residency::send_away(size_t parameter) {
  ResidentParameter& resident = residents_[parameter];
  if (resident.state == State::kAway) return;
  if (resident.state == State::kComing) {
    source_.drop(parameter);
    ahead_ -= resident.numel;
  } else {
    take_bytes(*resident.tensor.storage().unsafeGetStorageImpl(), resident.message);
  }
  resident.state = State::kAway;
  live_ -= resident.numel;
  live_bytes_ -= resident.bytes;
  spare_bytes_ += resident.memory.numel();
  spare_.push_back(std::move(resident.memory));
}

// Prefetches the next parameters within the limits, in the recorded order, up to the first that
// does not fit. Where a batch costs one launch, a batch is a quarter of the limit: the next one is
// launched once there is room for it, while what precedes it is still three quarters of the limit.
void Residency::look_ahead() {
  if (!current_ || limits_.prefetch == 0) return;
  const int64_t batch = in_batches_ ? limits_.prefetch / 4 : 0;
  size_t parameter = 0;
  int64_t seen = 0, started = 0;
  for (size_t place = 0; seen < limits_.prefetch && current_->upcoming(place, &parameter); ++place) {
    const ResidentParameter& resident = residents_[parameter];
    const int64_t before = seen;
    seen += resident.numel;
    if (resident.state != State::kAway) continue;
    if (started == 0 && before > limits_.prefetch - batch) break;
    if (ahead_ + resident.numel > limits_.prefetch || live_ + resident.numel > limits_.live) break;
    start(parameter);
    started += resident.numel;
    if (started < batch) continue;
    source_.launch();
    started = 0;
  }
  source_.launch();
}

// Evicts parameters that were kept for a later use, starting with the one with the most distant
// next use.
void Residency::make_room(int64_t numel) {
  while (live_ + numel > limits_.live) {
    size_t farthest = residents_.size();
    int64_t distance = -1;
    for (size_t p = 0; p < residents_.size(); ++p) {
      if (residents_[p].users > 0 || residents_[p].state == State::kAway) continue;
      const int64_t until = current_ ? current_->distance_to_next_use(p) : Trace::kNever;
      if (until > distance) {
        distance = until;
        farthest = p;
      }
    }
    if (farthest == residents_.size()) return;  // everything present is in use
    send_away(farthest);
  }
}

// Reuses buffers, because fresh memory costs a page fault per page. Spare and live buffers together
// never exceed the peak of live ones.
at::Tensor Residency::take_memory(const ResidentParameter& resident) {
  const auto fits = [&](const at::Tensor& memory) {
    return memory.numel() >= resident.bytes && memory.numel() <= resident.bytes + resident.bytes / 8;
  };
  const auto found = std::find_if(spare_.begin(), spare_.end(), fits);
  if (found != spare_.end()) {
    at::Tensor memory = std::move(*found);
    spare_.erase(found);
    spare_bytes_ -= memory.numel();
    return memory;
  }
  while (!spare_.empty() && live_bytes_ + spare_bytes_ + resident.bytes > peak_bytes_) {  // frees the oldest first
    spare_bytes_ -= spare_.front().numel();
    spare_.erase(spare_.begin());
  }
  return allocate_flat(resident.bytes, at::kByte, resident.tensor.device());
}

}  // namespace gannet::zero
