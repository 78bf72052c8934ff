#include <gannet/cursor.h>
#include <gannet/error.h>

#include <string>
#include <utility>

#include "base/format.h"

namespace gannet {
namespace {

// Visits each member with its name. Writing and reading share this list.
template <class Cursor, class Visit>
void each_member(Cursor& cursor, const Visit& visit) {
  visit("seed", cursor.seed);
  visit("epoch", cursor.epoch);
  visit("micro_batches", cursor.micro_batches);
  visit("samples", cursor.samples);
  visit("dataset_size", cursor.dataset_size);
  visit("shuffle", cursor.shuffle);
  visit("ended", cursor.ended);
  visit("state", cursor.state);
}

void read(const Value& value, int64_t& member) { member = value.as_int(); }
void read(const Value& value, bool& member) { member = value.as_bool(); }
void read(const Value& value, Value& member) { member = value; }

std::string place(const DataCursor& cursor) {
  return formatted("epoch {}, {} of {} samples, seed {}{}", cursor.epoch, cursor.samples, cursor.dataset_size, cursor.seed,
                   cursor.shuffle ? "" : ", not shuffled");
}

// Compares everything except the number of micro-batches, which differs between ranks.
bool same_place(DataCursor a, const DataCursor& b) {
  a.micro_batches = b.micro_batches;
  return a == b;
}

}  // namespace

Dict DataCursor::to_dict() const {
  Dict saved;
  each_member(*this, [&](const char* name, const auto& member) { saved[name] = member; });
  return saved;
}

DataCursor DataCursor::from_dict(const Dict& saved) {
  DataCursor cursor;
  each_member(cursor, [&](const char* name, auto& member) {
    const Value* value = saved.find(name);
    if (!value) throw Error(ErrorCode::kCorrupt, formatted("a saved data cursor lacks '{}'", name));
    try {
      read(*value, member);
    } catch (const Error& error) {
      throw Error(ErrorCode::kCorrupt, formatted("'{}' of a saved data cursor: {}", name, error.message()));
    }
  });
  for (const auto& [name, value] : saved.entries()) {
    bool is_known = false;
    each_member(cursor, [&, &name = name](const char* member, auto&) { is_known = is_known || name == member; });
    if (!is_known)
      throw Error(ErrorCode::kUnsupported,
                  formatted("a saved data cursor has a member '{}' that this version does not know", name),
                  "resume with the version of Gannet that saved it, or a newer one");
  }
  return cursor;
}

DataCursor DataCursor::for_rank(const std::vector<DataCursor>& saved, int64_t rank, int64_t world_size) {
  if (saved.empty()) throw Error(ErrorCode::kArgument, "no data cursor was saved");
  if (rank < 0 || rank >= world_size)
    throw Error(ErrorCode::kArgument, formatted("a data cursor was asked for rank {} of {}", rank, world_size));
  const DataCursor& first = saved.front();
  if (first.dataset_size > 0) {
    for (size_t other = 1; other < saved.size(); ++other)
      if (!same_place(saved[other], first))
        throw Error(ErrorCode::kMismatch,
                    formatted("the saved data cursors differ: rank 0 stood at {}, rank {} at {}", place(first), other,
                              place(saved[other])),
                    "ranks that share a dataset read it in step: give each the same number of batches");
    return first;
  }
  if (saved.size() == static_cast<size_t>(world_size)) return saved[static_cast<size_t>(rank)];
  for (const DataCursor& cursor : saved)
    if (!same_place(cursor, first) || cursor.micro_batches > 0 || cursor.ended || !cursor.state.is_null())
      throw Error(ErrorCode::kMismatch,
                  formatted("the data was a stream of each rank's own, saved by {} ranks: it cannot be divided among {}",
                            saved.size(), world_size),
                  formatted("resume on {} ranks, or train from a dataset with size() and get(i)", saved.size()));
  return first;
}

}  // namespace gannet
