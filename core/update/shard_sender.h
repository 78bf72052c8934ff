// All-gathers a range's shards in order, each while the next one is updated.
#pragma once

#include <cstddef>
#include <vector>

#include "params/pieces.h"
#include "params/range.h"
#include "params/store.h"

namespace gannet {

class ShardSender {
 public:
  /// `waits_for_all`: new values reach the device only after all pieces are updated.
  ShardSender(ParameterStore& store, Range& range, const std::vector<Piece>& pieces, bool waits_for_all)
      : store_(store), range_(range), pieces_(pieces), waits_for_all_(waits_for_all) {}

  /// Call when `piece` and all pieces before it have their new values.
  void piece_is_done(size_t piece) {
    if (waits_for_all_) return;
    const bool ends_shard = piece + 1 == pieces_.size() || pieces_[piece + 1].sub_group != pieces_[piece].sub_group;
    if (ends_shard) send_to(pieces_[piece].sub_group + 1);
  }
  /// Sends the remaining shards: a rank may have nothing to update in some of them.
  void all_are_done() { send_to(range_.shards.size()); }

 private:
  void send_to(size_t end) {
    for (; sent_ < end; ++sent_) store_.publish_shard(range_, sent_);
  }

  ParameterStore& store_;
  Range& range_;
  const std::vector<Piece>& pieces_;
  const bool waits_for_all_;
  size_t sent_ = 0;
};

}  // namespace gannet
