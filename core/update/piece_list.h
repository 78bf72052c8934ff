// Groups pieces into calls of an optimizer that takes lists (GANNET_OPTIMIZER_TAKES_LISTS), and
// holds the memory for the arguments of these calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "interfaces/optimizer.h"
#include "params/pieces.h"

namespace gannet {

// A list ends at the first limit that it reaches. The workspace limit is for all pieces of the list
// together; a single piece may exceed it.
inline constexpr size_t kMostPieces = 1024;
inline constexpr uint64_t kMostListWorkspace = uint64_t{256} << 20;

// The bytes of a list's workspace for a piece of `numel` elements, rounded up so that the next
// piece's part is aligned.
inline uint64_t workspace_part(const Optimizer& optimizer, int64_t numel) {
  return (optimizer.workspace_bytes(static_cast<uint64_t>(numel)) + 63) / 64 * 64;
}

struct ListStretch {
  size_t begin, end;  // piece indices
  uint64_t workspace_bytes;
};
// `workspace_of(piece)`: the bytes of workspace for a piece. `by_shard`: a list ends where its
// shard does, since the shard is sent to the other ranks before the next one is updated.
template <class WorkspaceOf>
std::vector<ListStretch> lists_of(const std::vector<Piece>& pieces, const WorkspaceOf& workspace_of, bool by_shard) {
  std::vector<ListStretch> lists;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const uint64_t workspace = workspace_of(pieces[i]);
    if (!lists.empty()) {
      ListStretch& last = lists.back();
      const bool has_room = i - last.begin < kMostPieces && last.workspace_bytes + workspace <= kMostListWorkspace;
      if (has_room && !(by_shard && pieces[i].sub_group != pieces[last.begin].sub_group)) {
        last.end = i + 1;
        last.workspace_bytes += workspace;
        continue;
      }
    }
    lists.push_back({i, i + 1, workspace});
  }
  return lists;
}

// Memory for one piece's arguments, which must live until the call returns.
struct PieceCall {
  std::vector<void*> states, squares;
  std::vector<double> rows;  // the current sums of the piece's segments
};

}  // namespace gannet
