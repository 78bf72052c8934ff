#include "pipeline/built_in.h"

#include <gannet/error.h>

#include <algorithm>

#include "base/format.h"
#include "base/text.h"
#include "pipeline/row.h"
#include "pipeline/v_schedules.h"

namespace gannet::pipeline {
namespace {

// `ahead`: the number of forwards before the first backward.
std::vector<Action> with_forwards_ahead(uint32_t stage, int64_t ahead, int64_t micro_batches) {
  Row row;
  for (int64_t i = 0; i < std::min(ahead, micro_batches); ++i) row.forward(stage);
  for (int64_t i = 0; i < micro_batches; ++i) {
    row.backward(stage);
    if (i + ahead < micro_batches) row.forward(stage);
  }
  return row.below(micro_batches);
}

// The order of passes over several chunks: `round` micro-batches go through one chunk, then the
// same ones go through the next.
struct Rounds {
  uint32_t stages, chunks;
  int64_t round;
  uint32_t forward_part(int64_t pass, uint32_t rank) const {
    return static_cast<uint32_t>(pass / round % chunks) * stages + rank;
  }
  uint32_t backward_part(int64_t pass, uint32_t rank) const {
    return (chunks - 1 - static_cast<uint32_t>(pass / round % chunks)) * stages + rank;
  }
};

// Backwards are whole. The warm-up has two forwards for each later rank, since the next rank runs a
// forward and a backward in between.
std::vector<Action> interleaved_row(uint32_t rank, const Rounds& rounds, int64_t passes) {
  const int64_t warmup = std::min(passes, (rounds.chunks - 1) * rounds.round + 2 * int64_t{rounds.stages - 1 - rank});
  Row row;
  for (int64_t pass = 0; pass < warmup; ++pass) row.forward(rounds.forward_part(pass, rank));
  for (int64_t pass = 0; pass < passes; ++pass) {
    if (warmup + pass < passes) row.forward(rounds.forward_part(warmup + pass, rank));
    row.backward(rounds.backward_part(pass, rank));
  }
  return row.below(passes);
}

// Runs input passes in place of backwards, and weight passes `rank` passes later. One warm-up
// forward for each later rank is enough, since the next rank runs a weight pass in between.
std::vector<Action> zero_bubble_row(uint32_t rank, const Rounds& rounds, int64_t passes) {
  const int64_t warmup = std::min(passes, (rounds.chunks - 1) * rounds.round + int64_t{rounds.stages - 1 - rank});
  Row row;
  for (int64_t pass = 0; pass < warmup; ++pass) row.forward(rounds.forward_part(pass, rank));
  for (int64_t pass = 0; pass < passes; ++pass) {
    if (warmup + pass < passes) row.forward(rounds.forward_part(warmup + pass, rank));
    row.input(rounds.backward_part(pass, rank));
    if (pass >= int64_t{rank}) row.weight();
  }
  while (row.waiting() > 0) row.weight();
  return row.below(passes);
}

std::vector<Action> forwards_alone(uint32_t stage, int64_t micro_batches) {
  Row row;
  for (int64_t i = 0; i < micro_batches; ++i) row.forward(stage);
  return row.below(micro_batches);
}

[[noreturn]] void refuse_size(const std::string& name, const std::string& problem, const std::string& next_step) {
  throw Error(ErrorCode::kArgument, formatted("schedule {}: {}", name, problem), next_step);
}

uint32_t chunks_of(const std::string& name, const ScheduleSize& size) {
  constexpr int64_t kMostPasses = 1 << 22;  // so that a typo does not exhaust memory
  const bool has_choice = name == "interleaved" || name == "interleaved-zb";
  const uint32_t fixed = name == "zb-v" || name == "dualpipe-v" ? 2 : 1;
  const uint32_t chunks = size.chunks.value_or(has_choice ? 2 : fixed);
  if (size.stages < 1 || chunks < 1 || size.micro_batches < 1 || chunks > kMostPasses / size.stages ||
      size.micro_batches > kMostPasses / (int64_t{size.stages} * chunks))
    refuse_size(name,
                formatted("it cannot have {} stages, {} micro-batches and {} chunks", size.stages, size.micro_batches, chunks),
                formatted("choose each from 1 on, with a product of at most {}", kMostPasses));
  if (!has_choice && chunks != fixed)
    refuse_size(name, formatted("it has {} chunks of layers a rank, and not {}", fixed, chunks),
                "leave the number of chunks out, or choose interleaved or interleaved-zb");
  if (name == "data-parallel" && size.stages > 1)
    refuse_size(name, formatted("it is that of 1 stage, and not of {}", size.stages), "choose another schedule, or 1 stage");
  if (name == "dualpipe-v" && size.micro_batches < 2 * int64_t{size.stages})
    refuse_size(name,
                formatted("{} stages need {} micro-batches at least, two a stage, and there are {}", size.stages,
                          2 * int64_t{size.stages}, size.micro_batches),
                "raise the number of micro-batches, or choose zb-v");
  return chunks;
}

// A round has at least as many micro-batches as there are stages, or all of them; it goes through a
// chunk before the next, so that its first one returns in time (Narayanan et al. 2021, 2.2).
Rounds rounds_of(const std::string& name, const ScheduleSize& size, uint32_t chunks) {
  const int64_t count = std::max<int64_t>(1, size.micro_batches / size.stages);
  if (chunks > 1 && size.micro_batches % count != 0)
    refuse_size(name,
                formatted("{} micro-batches cannot be divided into {} equal rounds for {} stages", size.micro_batches, count,
                          size.stages),
                formatted("choose a multiple of the stages, such as {} or {}", count * size.stages, (count + 1) * size.stages));
  return {size.stages, chunks, chunks > 1 ? size.micro_batches / count : size.micro_batches};
}

}  // namespace

const std::vector<std::string>& built_in_names() {
  static const auto* names = new std::vector<std::string>{"gpipe", "1f1b",       "interleaved", "zb-h1",        "interleaved-zb",
                                                          "zb-v",  "dualpipe-v", "inference",   "data-parallel"};
  return *names;
}

Schedule built_in(const std::string& name, const ScheduleSize& size) {
  const std::vector<std::string>& names = built_in_names();
  if (std::find(names.begin(), names.end(), name) == names.end())
    throw Error(ErrorCode::kArgument, formatted("there is no schedule '{}'{}", printable(name), did_you_mean(name, names)),
                formatted("it is one of: {}", join(names, ", ")));
  const uint32_t chunks = chunks_of(name, size);
  const bool is_v = name == "zb-v" || name == "dualpipe-v";
  Schedule schedule{{}, is_v ? v_shape(size.stages) : loop(size.stages, chunks)};
  const int64_t m = size.micro_batches, passes = m * chunks;
  for (uint32_t r = 0; r < size.stages; ++r) {
    std::vector<Action>& row = schedule.actions.emplace_back();
    if (name == "gpipe") row = with_forwards_ahead(r, m, m);
    if (name == "1f1b" || name == "data-parallel" || (name == "interleaved" && chunks == 1))
      row = with_forwards_ahead(r, size.stages - r, m);
    if (name == "interleaved" && chunks > 1) row = interleaved_row(r, rounds_of(name, size, chunks), passes);
    if (name == "zb-h1" || name == "interleaved-zb") row = zero_bubble_row(r, rounds_of(name, size, chunks), passes);
    if (name == "zb-v") row = zb_v_row(r, size.stages, m);
    if (name == "dualpipe-v") row = dualpipe_v_row(r, size.stages, m);
    if (name == "inference") row = forwards_alone(r, m);
  }
  return schedule;
}

}  // namespace gannet::pipeline
