// Recognizes folders of other programs that are given in place of a model or a checkpoint.
#pragma once

#include <string>

namespace gannet::files {

// Throws Error(kUnsupported), or Error(kArgument) if the wanted folder is inside this one, for: a
// PEFT adapter, an output folder of transformers' Trainer (the message names the newest
// checkpoint-N), a sharded checkpoint of torch.distributed.checkpoint (FSDP), a folder of Megatron
// or diffusers, or an accelerate state without weights. Returns for any other folder.
void refuse_known_folder(const std::string& folder);

// Lists the files beside the weights that no import reads: states of the optimizer, the scheduler
// and the random-number generators, found by their usual names.
std::string training_state_in(const std::string& folder);

}  // namespace gannet::files
