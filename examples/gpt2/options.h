// The command line. Flags shared with other trainers of the same contract: --model --tokens --token-bytes --seq-len --steps
// --metrics --save-model --threads --deepspeed_config.
#pragma once

#include <gannet/initialize.h>

#include <cstdint>
#include <string>
#include <vector>

#include "model.h"

namespace gpt2 {

struct Options {
  std::string model;   // folder to start from; "": a new model
  std::string tokens;  // file of tokens; "": text that the machine has
  int token_bytes = 1;
  int64_t sequence_length = 128;
  int64_t steps = 0;
  std::string metrics;                           // file for JSON lines
  std::string save_model;                        // folder to write
  std::string save_checkpoint, load_checkpoint;  // folders
  int64_t checkpoint_every = 0;                  // steps; 0: at the end only
  bool resume = false;
  bool give_memory_back = false;
  int threads = 0;  // 0: the cores divided among the ranks of this machine
  // Of a new model. 0.02 is made for widths of 768 and more: a narrow model learns several times faster from larger weights.
  GptOptions architecture{.width = 128, .initializer_range = 0.06};
  uint64_t seed = 7;
  int64_t generate = 0;              // tokens to write after training
  std::vector<std::string> prompts;  // rank r goes on from number r modulo their count
  double validation_fraction = 0;
  gannet::ConfigArguments config;
};

/// Reads the command line; prints help or the parser's complaint and exits the process where that is asked for or due.
Options parse_options(int argc, char** argv);

}  // namespace gpt2
