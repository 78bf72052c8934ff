#include <gannet/error.h>
#include <gannet/join.h>

#include "base/format.h"

namespace gannet::loading {

void fail_joining_elsewhere() {
  throw Error(ErrorCode::kPeerLost, "another rank failed while it read its next batch", "its own error says what happened");
}

void fail_joining_without_batch(bool here) {
  throw Error(
      ErrorCode::kArgument,
      formatted("{} has had no batch at all, so it has none to run with zero weight", here ? "this rank" : "another rank"),
      "give Join a batch of the right shapes for it: {.spare = batch}");
}

void check_join_weight(double weight) {
  if (weight > 0 && std::isfinite(weight)) return;
  throw Error(ErrorCode::kArgument, formatted("the weight of a batch in a Join must be a number above 0, not {}", weight));
}

}  // namespace gannet::loading
