// The data flow between the actions of a schedule: which results each action needs, and which
// results are sent from rank to rank.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "pipeline/schedule.h"

namespace gannet::pipeline {

/// Result of an action: the activations that leave a part (F), the gradient of a part's inputs (B
/// and I), or the gradients of its weights (W).
struct Result {
  enum Kind : uint8_t { kActivation, kInputGradient, kWeightGradient };
  Kind kind;
  uint32_t part;
  int64_t micro_batch;
  bool operator==(const Result&) const = default;
};

struct ResultHash {
  size_t operator()(const Result& result) const {
    const uint64_t all = (static_cast<uint64_t>(result.micro_batch) << 24) ^ (uint64_t{result.part} << 2) ^ result.kind;
    return std::hash<uint64_t>()(all);
  }
};

Result result_of(const Action& action);
/// "the activations of part 1, micro-batch 3"
std::string to_text(const Result& result);
/// The results that the action needs before it can run, in the order in which the pipeline computes
/// them; the one that another rank computes, if any, is last.
std::vector<Result> needs_of(const Schedule& schedule, const Action& action);

/// A result that goes to another rank.
struct Message {
  Result result;
  uint32_t from, to;  // ranks
};
/// The message that the action sends or receives; null: none.
std::optional<Message> sent_by(const Schedule& schedule, const Action& action);
std::optional<Message> received_by(const Schedule& schedule, const Action& action);

/// The position of an action in a schedule.
struct Position {
  size_t rank, index;
};
/// The action that computes each result; the first one if an invalid schedule computes it twice.
std::unordered_map<Result, Position, ResultHash> producers(const Schedule& schedule);

}  // namespace gannet::pipeline
