// The order in which a stage runs the forwards and backwards of a step's micro-batches. What a
// stage receives and sends follows from it: a forward takes what the previous stage has sent, a
// backward the gradients that the next stage has sent.
//
//   one_forward_one_backward(0, 2, 4)     // stage 0 of 2, 4 micro-batches: "F0 F1 B0 F2 B1 F3 B2 B3"
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gannet::pipeline {

struct Action {
  enum Kind : uint8_t { kForward, kBackward };
  Kind kind;
  int64_t micro_batch;
  uint32_t chunk = 0;  // of the stage's own chunks of layers
  bool operator==(const Action&) const = default;
};

/// "F0 F1 B0"; with several chunks "F0.0 F0.1 B0.1": micro-batch, chunk.
std::string to_text(const std::vector<Action>& actions);

/// All forwards, then all backwards: every micro-batch is in flight at once.
std::vector<Action> all_forward_all_backward(uint32_t stage, uint32_t stages, int64_t micro_batches);
/// As many forwards as there are stages from this one on, then a backward and a forward in turn: at
/// most that many micro-batches are in flight. The order of DeepSpeed's TrainSchedule.
std::vector<Action> one_forward_one_backward(uint32_t stage, uint32_t stages, int64_t micro_batches);

/// Each stage has several chunks of layers: chunk c of stage s follows chunk c of the previous stage,
/// and the first stage's follows the last stage's chunk c - 1. Micro-batches go through a chunk in
/// groups of num_stages, which divides the bubble of one_forward_one_backward by `chunks` (Narayanan et al. 2021, "Efficient
/// Large-Scale Language Model Training on GPU Clusters Using Megatron-LM"). Throws Error(kConfig) unless `micro_batches` is a
/// multiple of `stages`.
std::vector<Action> interleaved(uint32_t stage, uint32_t stages, uint32_t chunks, int64_t micro_batches);

/// `name`: "1f1b", "gpipe" or "interleaved", which alone has more than one chunk.
std::vector<Action> actions_of(const std::string& name, uint32_t stage, uint32_t stages, uint32_t chunks, int64_t micro_batches);

}  // namespace gannet::pipeline
