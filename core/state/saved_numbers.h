// The numbers of a checkpoint that a load takes at its word, looked at before anything is written.
#pragma once

#include <string>

#include "checkpoint/checkpoint.h"

namespace gannet {

// A member of its document that every engine saves; Error(kCorrupt) where it is missing.
const Value& saved_value(const checkpoint::Opened& found, const char* key);

// Counters from 0 to 2^53, hyperparameters finite and in range, a loss scale above 0; else Error(kCorrupt).
void check_numbers(const checkpoint::Opened& found, bool is_fp16, bool with_states);

// What it was trained in: "fp32", "bf16", "fp16"; "" where that cannot be told.
std::string precision_of(const checkpoint::Opened& found);

}  // namespace gannet
