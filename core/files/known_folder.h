// Folders of other programs that people give where a model or a checkpoint is wanted, named for what they are.
#pragma once

#include <string>

namespace gannet::files {

// Throws Error(kUnsupported), or Error(kArgument) where the wanted folder is in this one, for: a PEFT adapter, an output folder
// of transformers' Trainer (the newest checkpoint-N is named), a sharded checkpoint of torch.distributed.checkpoint (FSDP),
// Megatron's and diffusers' folders, a state of accelerate without weights. Returns for any other.
void refuse_known_folder(const std::string& folder);

// The files beside weights that no import takes: an optimizer's, a schedule's and random-number states, by their usual names.
std::string training_state_in(const std::string& folder);

}  // namespace gannet::files
