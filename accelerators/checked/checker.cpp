#include "checker.h"

#include <gannet/sdk.hpp>

#include "memory.h"

namespace gannet::accelerators::checked {

Checker& Checker::get() {
  static Checker* const checker = new Checker;
  return *checker;
}

Checker::Checker() { host_ = &actors_.emplace_back(Actor{0, "the host", {}}); }

Actor& Checker::make_actor(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (!ended_.empty()) {
    Actor& again = *ended_.back();
    ended_.pop_back();
    again.name = name;
    return again;
  }
  return actors_.emplace_back(Actor{static_cast<uint32_t>(actors_.size()), name, {}});
}

void Checker::end(Actor& actor) {
  host_waits_for(actor);
  const std::lock_guard lock(mutex_);
  ended_.push_back(&actor);
}

const std::string* Checker::named(std::string_view text) {
  const std::lock_guard lock(mutex_);
  auto found = names_.find(text);
  if (found == names_.end()) found = names_.emplace(text).first;
  return &*found;
}

// ---- Ordering -----------------------------------------------------------------------------------

Clock Checker::record(const Actor& actor) {
  const std::lock_guard lock(mutex_);
  Clock clock = actor.clock;
  clock.join(host_->clock);
  return clock;
}

void Checker::wait(Actor& actor, const Clock& clock) {
  const std::lock_guard lock(mutex_);
  actor.clock.join(clock);
}

void Checker::host_waits(const Clock& clock) {
  ++counters_.host_waits;
  host_learns(clock);
}

void Checker::host_learns(const Clock& clock) {
  const std::lock_guard lock(mutex_);
  host_->clock.join(clock);
  accesses_.sweep(host_->clock);
}

void Checker::host_waits_for_all() {
  const std::lock_guard lock(mutex_);
  ++counters_.host_waits;
  for (const Actor& actor : actors_) host_->clock.join(actor.clock);
  accesses_.sweep(host_->clock);
}

// ---- Operations ---------------------------------------------------------------------------------

std::string Checker::text_of(const Race& race) const {
  const auto side = [](const ActorOperation& moment, bool writes) {
    return "'" + *moment.operation + "' on " + moment.actor->name + (writes ? " writes" : " reads");
  };
  const Memory::BlockDescription buffer = Memory::get().describe(race.begin);
  std::string text = side(race.later, race.later_writes) + " bytes that " + side(race.earlier, race.earlier_writes) +
                     ", and nothing orders the two: bytes [" + std::to_string(race.begin - buffer.begin) + ", " +
                     std::to_string(race.end - buffer.begin) + ") of " + buffer.text;
  return text;
}

void Checker::launch(Actor& actor, std::string_view operation, std::span<const Access> accesses) {
  const std::string* const name = named(operation);
  const std::lock_guard lock(mutex_);
  actor.clock.join(host_->clock);
  const ActorOperation now{&actor, actor.clock.advance(actor.number), name};
  std::string found;
  for (const Access& access : accesses)
    if (const auto race = accesses_.note(access, now, actor.clock); race && found.empty()) found = text_of(*race);
  if (!found.empty()) ++counters_.races;
  if (found.empty()) found.swap(unseen_);
  if (!found.empty()) throw sdk::Failure(GANNET_INVALID_ARGUMENT, found);
}

void Checker::free(Actor& actor, uint64_t begin, uint64_t end, const std::vector<const Actor*>& users) {
  static const std::string* const kFree = named("free");
  const std::lock_guard lock(mutex_);
  Clock known = actor.clock;
  known.join(host_->clock);
  if (const auto race = accesses_.find({begin, end, true}, {&actor, 0, kFree}, known, users)) {
    ++counters_.races;
    if (unseen_.empty()) unseen_ = text_of(*race);
  }
  accesses_.forget(begin, end);
}

std::map<std::string, int64_t> Checker::figures() const {
  return {{"launches", counters_.launches},
          {"copies", counters_.copies},
          {"collectives", counters_.collectives},
          {"collective_launches", counters_.collective_launches},  // a batch is one
          {"updates", counters_.updates},
          {"host_waits", counters_.host_waits},
          {"allocations", counters_.allocations},
          {"allocated_bytes", counters_.allocated_bytes},
          {"races", counters_.races}};
}

void Checker::reset() {
  const std::lock_guard lock(mutex_);
  for (auto* counter :
       {&counters_.launches, &counters_.copies, &counters_.collectives, &counters_.collective_launches, &counters_.updates,
        &counters_.host_waits, &counters_.allocations, &counters_.allocated_bytes, &counters_.races})
    *counter = 0;
  unseen_.clear();
}

}  // namespace gannet::accelerators::checked
