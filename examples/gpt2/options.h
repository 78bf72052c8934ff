// Command line options. The following are shared with other trainers that have the same interface:
// --model --tokens --token-bytes --seq-len --steps --metrics --save-model --threads
// --deepspeed_config.
#pragma once

#include <gannet/initialize.h>

#include <cstdint>
#include <string>
#include <vector>

#include "model.h"

namespace gpt2 {

struct Options {
  std::string model;   // folder of the initial model; "": a new model
  std::string tokens;  // token file; "": text from this machine
  int token_bytes = 1;
  int64_t sequence_length = 128;
  int64_t steps = 0;
  std::string metrics;                           // file for JSON lines
  std::string save_model;                        // folder to write
  std::string save_checkpoint, load_checkpoint;  // folders
  int64_t checkpoint_every = 0;                  // in steps; 0: only at the end
  bool resume = false;
  bool give_memory_back = false;
  uint32_t pipeline = 1;  // stages
  int threads = 0;        // 0: the machine's cores, divided among its ranks
  // The options of new models. GPT-2's initializer_range of 0.02 is meant for widths of 768 and
  // more; a narrow model learns several times faster from larger weights.
  GptOptions architecture{.width = 128, .initializer_range = 0.06};
  uint64_t seed = 7;
  int64_t generate = 0;              // number of tokens to write after training
  std::vector<std::string> prompts;  // rank r uses prompt r modulo the number of prompts
  double validation_fraction = 0;
  gannet::ConfigArguments config;
};

/// Parses the command line. If necessary, prints help or the parser's error and exits the process.
Options parse_options(int argc, char** argv);

}  // namespace gpt2
