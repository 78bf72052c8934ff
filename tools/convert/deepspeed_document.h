// Converts the non-tensor contents of a DeepSpeed checkpoint to a Gannet document: counters,
// schedule, loss scale, hyperparameters, client_state.
#pragma once

#include <gannet/value.h>

#include "checkpoint/checkpoint.h"
#include "convert/deepspeed.h"
#include "convert/deepspeed_state.h"

namespace gannet::convert {

// Adds to the receipt what was imported and what was left out. `client` receives the tensors of
// client_state, by name.
Dict document_of(const DeepSpeedFolder& folder, const DeepSpeedState& state, DeepSpeedReceipt& receipt,
                 std::vector<checkpoint::Slice>& client);

}  // namespace gannet::convert
