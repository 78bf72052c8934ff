#include <gannet/error.h>
#include <gannet/join.h>

namespace gannet::loading {

void fail_joining_elsewhere() {
  throw Error(ErrorCode::kPeerLost, "another rank failed while it read its next batch", "its own error says what happened");
}

void fail_joining_without_batch(bool here) {
  throw Error(
      ErrorCode::kArgument,
      std::string(here ? "this rank" : "another rank") + " has had no batch at all, so it has none to run with zero weight",
      "give Join a batch of the right shapes for it: {.spare = batch}");
}

void check_join_weight(double weight) {
  if (weight > 0 && std::isfinite(weight)) return;
  throw Error(ErrorCode::kArgument, "the weight of a batch in a Join must be a number above 0, not " + std::to_string(weight));
}

}  // namespace gannet::loading
