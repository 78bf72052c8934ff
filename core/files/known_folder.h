// Recognizes folders of other programs that are given in place of a model or a checkpoint.
#pragma once

#include <string>

namespace gannet::files {

// Throws Error(kUnsupported), or Error(kArgument) if the wanted folder is inside this one, for a PEFT
// adapter, a Trainer's output folder (the message names the newest checkpoint-N) or its checkpoint
// without weights, Hugging Face's cache, a sharded checkpoint of torch.distributed.checkpoint (FSDP),
// a folder of Megatron or diffusers, or an accelerate state without weights. Others are accepted.
void refuse_known_folder(const std::string& folder);

// Lists files next to the weights that imports do not read, by their usual names: states of the
// optimizer, scheduler, loss scaler, random-number generators and Trainer; "" if there are none.
std::string training_state_in(const std::string& folder);

}  // namespace gannet::files
