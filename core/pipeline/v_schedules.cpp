#include "pipeline/v_schedules.h"

#include <algorithm>

#include "pipeline/row.h"

namespace gannet::pipeline {
namespace {

// The two parts of a rank in a V.
struct Parts {
  uint32_t down, up;
};

Parts parts_on(uint32_t rank, uint32_t ranks) { return {rank, 2 * ranks - 1 - rank}; }

}  // namespace

// Qi et al. 2023, 6 (ZB-V), in the phases of its handcrafted order: enough forwards to take the
// first micro-batch down the V and back up to this rank, then one pass of each kind in turn, and
// finally the remaining weight passes in the bubbles between input passes.
std::vector<Action> zb_v_row(uint32_t rank, uint32_t ranks, int64_t micro_batches) {
  const auto [down, up] = parts_on(rank, ranks);
  const uint32_t below = ranks - rank;  // number of ranks from this one on
  // The order is built for at least 2p - 1 micro-batches; if there are fewer, the actions of the
  // surplus ones are left out, which keeps the order of the rest.
  const int64_t count = std::max<int64_t>(micro_batches, 2 * int64_t{ranks} - 1);
  Row row;
  const auto turn = [&row](uint32_t part) {
    row.input(part);
    row.weight(part);
  };
  for (uint32_t i = 0; i + 1 < 2 * below; ++i) row.forward(down);
  for (uint32_t i = 0; i < rank; ++i) {
    row.forward(up);
    row.forward(down);
  }
  for (uint32_t i = 0; i < below; ++i) {
    row.forward(up);
    turn(up);
  }
  while (row.forwards(up) < count) {
    if (row.forwards(down) < count) row.forward(down);
    turn(down);
    row.forward(up);
    turn(up);
  }
  for (uint32_t i = 0; i < rank; ++i) {
    row.input(down);
    row.input(up);
  }
  for (uint32_t i = 0; i < below; ++i) turn(down);
  for (uint32_t i = 0; i < rank; ++i) row.weight(up);
  while (row.waiting() > 0) row.weight();
  return row.below(micro_batches);
}

// DeepSeek's DualPipeV (github.com/deepseek-ai/DualPipe), in its eight steps. A forward and a
// backward that DualPipeV would overlap run one after the other.
std::vector<Action> dualpipe_v_row(uint32_t rank, uint32_t ranks, int64_t micro_batches) {
  const auto [down, up] = parts_on(rank, ranks);
  const uint32_t behind = ranks - 1 - rank;
  Row row;
  for (uint32_t i = 0; i < 2 * behind; ++i) row.forward(down);  // 1
  for (uint32_t i = 0; i <= rank; ++i) {                        // 2
    row.forward(down);
    row.forward(up);
  }
  for (uint32_t i = 0; i < behind; ++i) {  // 3
    row.input(up);
    row.weight();
    row.forward(up);
  }
  for (int64_t i = 0; i < micro_batches - 2 * int64_t{ranks} + rank + 1; ++i) {  // 4
    row.forward(down);
    row.backward(up);
    row.forward(up);
    row.backward(down);
  }
  for (uint32_t i = 0; i < behind; ++i) {  // 5
    row.backward(up);
    row.forward(up);
    row.backward(down);
  }
  // From the middle of step 6 on, weight passes are deferred to the bubbles at the end.
  bool is_apart = false;
  const auto last_pass = [&](uint32_t part) { is_apart ? row.input(part) : row.backward(part); };
  for (uint32_t i = 0; i <= rank; ++i) {  // 6
    const bool is_middle = i == (rank + 1) / 2;
    is_apart = is_apart || (is_middle && rank % 2 == 1);
    last_pass(up);
    is_apart = is_apart || is_middle;
    last_pass(down);
  }
  for (uint32_t i = 0; i < behind; ++i) {  // 7
    row.weight();
    last_pass(down);
  }
  while (row.waiting() > 0) row.weight();  // 8
  return row.below(micro_batches);
}

}  // namespace gannet::pipeline
