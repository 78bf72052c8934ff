// Recognizes folders of other programs that are given in place of a model or a checkpoint.
#pragma once

#include <string>

namespace gannet::files {

// Refuses a folder that cannot be loaded as a model: a PEFT adapter; a Trainer's output folder (the
// error names the newest checkpoint-N) or a Trainer checkpoint without weights; Hugging Face's
// cache; an FSDP checkpoint (torch.distributed.checkpoint); a Megatron or diffusers folder; an
// accelerate state without weights. kArgument for a Trainer's output folder and
// Hugging Face's cache, else kUnsupported.
void refuse_known_folder(const std::string& folder);

// Lists files next to the weights that imports do not read, by their usual names: states of the
// optimizer, scheduler, loss scaler, random-number generators and Trainer; "" if there are none.
std::string training_state_in(const std::string& folder);

}  // namespace gannet::files
