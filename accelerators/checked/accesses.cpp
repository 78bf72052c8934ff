#include "accesses.h"

#include <algorithm>

namespace gannet::accelerators::checked {

std::optional<Race> Accesses::race_with(const Segment& segment, uint64_t begin, const Access& access, const ActorOperation& now,
                                        const Clock& known, const std::vector<const Actor*>& except) {
  const auto is_before = [&](const ActorOperation& earlier) {
    return !earlier.actor || known.knows(earlier.actor->number, earlier.tick) ||
           std::find(except.begin(), except.end(), earlier.actor) != except.end();
  };
  const auto race = [&](const ActorOperation& earlier, bool writes) {
    return Race{earlier, now, writes, access.writes, std::max(begin, access.begin), std::min(segment.end, access.end)};
  };
  if (!is_before(segment.write)) return race(segment.write, true);
  if (access.writes)
    for (const ActorOperation& read : segment.reads)
      if (!is_before(read)) return race(read, false);
  return std::nullopt;
}

std::optional<Race> Accesses::find(const Access& access, const ActorOperation& now, const Clock& known,
                                   const std::vector<const Actor*>& except) const {
  auto segment = segments_.upper_bound(access.begin);
  if (segment != segments_.begin() && std::prev(segment)->second.end > access.begin) --segment;
  for (; segment != segments_.end() && segment->first < access.end; ++segment)
    if (auto race = race_with(segment->second, segment->first, access, now, known, except)) return race;
  return std::nullopt;
}

Accesses::Segments::iterator Accesses::cut(uint64_t at) {
  auto next = segments_.lower_bound(at);
  if (next == segments_.begin()) return next;
  const auto before = std::prev(next);
  if (before->second.end <= at) return next;
  Segment rest = before->second;
  before->second.end = at;
  return segments_.emplace_hint(next, at, std::move(rest));
}

std::optional<Race> Accesses::note(const Access& access, const ActorOperation& now, const Clock& known) {
  if (access.begin >= access.end) return std::nullopt;
  const auto race = find(access, now, known);
  cut(access.end);
  auto segment = cut(access.begin);
  if (access.writes) {
    segments_.erase(segment, segments_.lower_bound(access.end));
    segments_.emplace(access.begin, Segment{access.end, now, {}});
    return race;
  }
  for (uint64_t at = access.begin; at < access.end;) {
    if (segment == segments_.end() || segment->first > at) {  // bytes that were not used before
      const uint64_t end = segment == segments_.end() ? access.end : std::min(access.end, segment->first);
      segment = segments_.emplace_hint(segment, at, Segment{end, {nullptr, 0, nullptr}, {now}});
    } else {
      auto& reads = segment->second.reads;
      const auto mine =
          std::find_if(reads.begin(), reads.end(), [&](const ActorOperation& read) { return read.actor == now.actor; });
      if (mine == reads.end())
        reads.push_back(now);
      else
        *mine = now;
    }
    at = segment->second.end;
    ++segment;
  }
  return race;
}

void Accesses::forget(uint64_t begin, uint64_t end) {
  if (begin >= end) return;
  cut(end);
  const auto first = cut(begin);
  segments_.erase(first, segments_.lower_bound(end));
}

void Accesses::sweep(const Clock& known) {
  if (segments_.size() < sweep_at_) return;
  const auto is_known = [&](const ActorOperation& moment) {
    return !moment.actor || known.knows(moment.actor->number, moment.tick);
  };
  std::erase_if(segments_, [&](const auto& entry) {
    const Segment& segment = entry.second;
    return is_known(segment.write) && std::all_of(segment.reads.begin(), segment.reads.end(), is_known);
  });
  sweep_at_ = std::max<size_t>(4096, 2 * segments_.size());
}

}  // namespace gannet::accelerators::checked
