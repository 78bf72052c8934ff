// A pipeline's schedule as data: for each rank, the order in which it runs the passes of a step's
// micro-batches. What a rank receives and sends follows from that order: a forward consumes the
// previous part's result, a backward consumes the next part's gradient.
//
//   const Schedule schedule = built_in("1f1b", {.stages = 2, .micro_batches = 2});   // built_in.h
//   to_csv(schedule);     // "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
//   validate(schedule);   // validate.h: is every action there, in an order that cannot deadlock?
//   simulate(schedule);   // simulate.h: start and end of each action
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gannet::pipeline {

/// One pass of one micro-batch through one part of the model. A part (a virtual stage) is a run of
/// consecutive layers; a rank holds one part, or several (chunks).
struct Action {
  enum Kind : uint8_t {
    kForward,   ///< F
    kBackward,  ///< B: gradients of inputs and of weights
    kInput,     ///< I: only the gradients of inputs, which the previous part waits for
    kWeight,    ///< W: gradients of weights, after I
  };
  Kind kind;
  uint32_t part;  // 0 to parts - 1, in the order of the layers
  int64_t micro_batch;
  bool operator==(const Action&) const = default;
};

/// The actions of every rank, and which rank has which part.
struct Schedule {
  std::vector<std::vector<Action>> actions;  // [ranks][actions of the rank, in order]
  std::vector<uint32_t> rank_of;             // [parts]

  size_t ranks() const { return actions.size(); }
  size_t parts() const { return rank_of.size(); }
  /// One more than the highest micro-batch of any action.
  int64_t micro_batches() const;
  /// The number of parts of a rank.
  size_t parts_of(size_t rank) const;
  bool operator==(const Schedule&) const = default;
};

/// Places parts on ranks in a loop: part p is on rank p modulo `ranks`.
std::vector<uint32_t> loop(uint32_t ranks, uint32_t chunks);
/// Two parts per rank in a V: down the ranks and back up, so rank 0 has the first and the last.
std::vector<uint32_t> v_shape(uint32_t ranks);

/// "2F0": part 2, forward, micro-batch 0. PyTorch's notation (torch.distributed.pipelining).
std::string to_text(const Action& action);
/// "0F0 0F1 0B0"
std::string to_text(const std::vector<Action>& actions);

/// A row for each rank, a cell for each action.
std::string to_csv(const Schedule& schedule);

/// Reads what to_csv() and PyTorch write: a row for each rank, in each cell an action or nothing.
/// A rank has the parts that are in its row. PyTorch's cells for communication and sharding
/// (SEND_F, RECV_F, SEND_B, RECV_B, UNSHARD, RESHARD, REDUCE_GRAD) are ignored, since sends follow
/// from the actions, and "(0F4;7B1)OVERLAP_F_B" is read as its two actions, one after the other.
/// `name`: the source of the text, for errors. Throws Error(kConfig) with row and column for a
/// malformed cell, for a part on two rows or on none, and for a row or a text without actions.
/// validate() checks whether the order works.
Schedule from_csv(std::string_view text, const std::string& name);
/// Reads such a file. Also throws Error(kNotFound) if it cannot be read, and Error(kConfig) if it is
/// too large for a schedule (64 MiB).
Schedule read_csv(const std::string& path);

}  // namespace gannet::pipeline
