// One pass over the pieces of a range. Calls the caller's function with each piece's arguments
// while the piece's page is in memory, and sends finished shards to other ranks.
//
//   RangePass pass(context, store, range, group, sums, {...}, memory);
//   pass.for_each([&](size_t piece, const gannet_update_args& args) { optimizer.update(args); });
//
// If all pieces are in memory, an optimizer that takes lists gets many pieces per call (for_lists).
#pragma once

#include <gannet/abi.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "params/pieces.h"
#include "params/range.h"
#include "params/rank_context.h"
#include "params/store.h"
#include "update/average.h"
#include "update/host_update.h"
#include "update/piece_arrays.h"
#include "update/piece_list.h"
#include "update/piece_transfers.h"
#include "update/shard_sender.h"
#include "update/step_numbers.h"
#include "update/sums.h"
#include "update/workspace.h"

namespace gannet {

/// Memory that the updater keeps between passes.
struct PassMemory {
  std::vector<at::Tensor> spare_pages;
  Workspace workspace;  // for the optimizer's work on pieces
  StepNumbers numbers;  // for optimizers that read a step's numbers from the pieces' memory
};

class RangePass {
 public:
  struct Options {
    gannet_pass pass = GANNET_PASS_UPDATE;
    bool writes = true;  // computes new parameters and sends them to the device and other ranks; false: only computes sums
    double grad_scale = 1;
    int64_t applied_steps = 0;  // updates before this one
    uint64_t seed = 0;
    double loss = 0;
    const Array* second_gradient = nullptr;  // null: none in this pass
    const Average* average = nullptr;        // updated after every piece; null: none
    bool gradients_on_host = false;          // so a host update need not copy them
  };
  /// `lags`: see cut_by_lag; empty if no tensor missed an update. `host`: null if the optimizer
  /// works on the pieces where they are.
  RangePass(RankContext& context, ParameterStore& store, Range& range, Group& group, Sums& sums, const std::vector<int64_t>& lags,
            HostUpdate* host, const Options& options, PassMemory& memory);
  RangePass(const RangePass&) = delete;

  const Piece& piece(size_t index) const { return pieces_[index]; }
  /// Whether the optimizer can take many pieces per call.
  bool has_lists() const { return group_.optimizer->takes_lists() && !arrays_.is_paged() && !transfers_.is_to_host(); }
  void for_each(const std::function<void(size_t piece, const gannet_update_args& args)>& body);
  void for_lists(const std::function<void(size_t first_piece, const std::vector<gannet_update_args>& list)>& body);

 private:
  gannet_update_args arguments(const Pages& pages, size_t index, PieceCall& call, void* workspace);
  void set_sums(const Piece& piece, PieceCall& call, gannet_update_args& args);
  void move_average(const Pages& pages, size_t index, const gannet_update_args& args) const;
  Pages::Options page_options() const;

  RankContext& context_;
  ParameterStore& store_;
  Range& range_;
  Group& group_;
  Optimizer& optimizer_;
  Sums& sums_;
  const Options options_;
  PassMemory& memory_;
  const PieceArrays arrays_;
  const std::vector<Piece> pieces_;
  PieceTransfers transfers_;
  ShardSender sender_;
};

}  // namespace gannet
