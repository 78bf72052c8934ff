// Validates the numbers in a checkpoint that a load relies on, before the load changes anything.
#pragma once

#include <string>

#include "checkpoint/checkpoint.h"

namespace gannet {

// Returns a member of the checkpoint's document that every engine saves. Throws Error(kCorrupt) if
// it is missing.
const Value& saved_value(const checkpoint::Opened& found, const char* key);

// Requires counters from their minimum (-1, 0 or 1) to 2^53, finite hyperparameters in range, and a
// loss scale above 0. Throws Error(kCorrupt) otherwise.
void check_numbers(const checkpoint::Opened& found, bool is_fp16, bool with_states);

// The training precision: "fp32", "bf16" or "fp16"; "" if unknown.
std::string precision_of(const checkpoint::Opened& found);

}  // namespace gannet
