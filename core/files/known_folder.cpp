#include "files/known_folder.h"

#include <gannet/error.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/format.h"
#include "base/text.h"
#include "files/io.h"

namespace gannet::files {
namespace {

// Returns the number after the prefix, as in "checkpoint-N"; -1 for any other name.
int64_t number_after(const std::string& name, std::string_view prefix) {
  int64_t number = -1;
  if (!name.starts_with(prefix) || name.size() == prefix.size()) return -1;
  const char* const end = name.data() + name.size();
  const auto [stop, code] = std::from_chars(name.data() + prefix.size(), end, number);
  return code == std::errc() && stop == end ? number : -1;
}

// Returns the name with the highest number; "" if no name has a number.
std::string newest(const std::vector<std::string>& names, std::string_view prefix) {
  std::string found;
  int64_t most = -1;
  for (const std::string& name : names)
    if (const int64_t number = number_after(name, prefix); number > most) {
      most = number;
      found = name;
    }
  return found;
}

[[noreturn]] void refuse(const std::string& folder, const std::string& what, const std::string& next,
                         ErrorCode code = ErrorCode::kUnsupported) {
  throw Error(code, formatted("{} is {}", folder, what), next);
}

}  // namespace

void refuse_known_folder(const std::string& folder) {
  if (!kind_of(folder).is_folder) return;
  const std::vector<std::string> names = names_in(folder);
  const auto has = [&](std::string_view name) { return std::binary_search(names.begin(), names.end(), name); };
  const auto any = [&](auto&& test) { return std::any_of(names.begin(), names.end(), test); };
  const bool has_weights = has("model.safetensors") || has("pytorch_model.bin") || has("model.safetensors.index.json") ||
                           has("pytorch_model.bin.index.json");
  if (has("adapter_config.json"))
    refuse(folder, "a PEFT adapter (adapter_config.json), not a model",
           "merge it first: in Python, model.merge_and_unload().save_pretrained(FOLDER); then give FOLDER");
  if (const std::string step = newest(names, "checkpoint-"); !step.empty() && !has_weights)
    refuse(folder, formatted("an output folder of a Trainer, with {} in it", step),
           formatted("give its newest, {}/{}", folder, step), ErrorCode::kArgument);
  if (has("snapshots") && (has("blobs") || has("refs"))) {
    const std::vector<std::string> snapshots = names_in(formatted("{}/snapshots", folder));
    refuse(folder, "a model in Hugging Face's cache, whose files are in snapshots/",
           snapshots.empty() ? "fetch the model again: it has no snapshot"
                             : formatted("give {}/snapshots/{}", folder, snapshots.back()),
           ErrorCode::kArgument);
  }
  if (has(".metadata") || any([](const std::string& name) { return name.ends_with(".distcp"); }))
    refuse(folder, "a sharded checkpoint of torch.distributed.checkpoint, as FSDP writes it",
           "put it together first: `python -m torch.distributed.checkpoint.format_utils dcp_to_torch FOLDER model.pt`; then give "
           "model.pt");
  for (const std::string& name : names)
    if (name.starts_with("pytorch_model_fsdp") || (name.starts_with("optimizer_") && !has("pytorch_model_fsdp_0")))
      if (kind_of(formatted("{}/{}", folder, name)).is_folder)
        refuse(folder, formatted("a checkpoint of FSDP, as accelerate writes it (its shards are in {})", name),
               "put it together first: `accelerate merge-weights FOLDER/pytorch_model_fsdp_0 OUT`; then give OUT");
  if (has("latest_checkpointed_iteration.txt") ||
      any([](const std::string& name) { return name == "model_optim_rng.pt" || number_after(name, "iter_") >= 0; }))
    refuse(folder, "a checkpoint of Megatron-LM, whose names and layouts are Megatron's own",
           "convert it to Hugging Face's layout with Megatron's tools/checkpoint/convert.py, and give that folder");
  if (has("model_index.json"))
    refuse(folder, "a pipeline of diffusers (model_index.json), of several models", "give the folder of one of them");
  const bool has_state =
      any([](const std::string& name) { return name.starts_with("random_states_") && name.ends_with(".pkl"); });
  if (has_state && !has_weights)
    refuse(folder, "a state that accelerate's save_state wrote, without weights in its own files",
           has("pytorch_model") ? formatted("its weights are DeepSpeed's: give {}/pytorch_model", folder)
                                : "save the weights with accelerator.save_model(model, FOLDER), and give FOLDER");
  if (!has("trainer_state.json") || has_weights) return;
  if (has("manifest.json"))
    refuse(folder, "a checkpoint of Gannet's Trainer, without a model.safetensors beside it",
           formatted("`gannet checkpoint export {}/.. OUT --tag {}` writes its weights as files of Hugging Face's; the model's "
                     "config.json must be beside them",
                     folder, last_name(folder)));
  if (has("latest"))
    refuse(
        folder, "a checkpoint of transformers' Trainer whose weights are DeepSpeed's",
        formatted("`gannet checkpoint import {} OUT` reads them, and `gannet checkpoint export {} OUT` writes them as files of "
                  "Hugging Face's",
                  folder, folder));
  refuse(folder, "a checkpoint of transformers' Trainer without weights (it has no model.safetensors and no pytorch_model.bin)",
         "give the folder of its weights; its optimizer and its progress are not read");
}

std::string training_state_in(const std::string& folder) {
  if (!kind_of(folder).is_folder) return "";
  std::vector<std::string> found;
  for (const std::string& name : names_in(folder)) {
    const bool is_state = name == "optimizer.pt" || name == "optimizer.bin" || name == "scheduler.pt" ||
                          name == "scheduler.bin" || name == "scaler.pt" || name == "trainer_state.json" ||
                          name == "training_args.bin" || (name.starts_with("rng_state") && name.ends_with(".pth")) ||
                          name.starts_with("random_states_");
    if (is_state) found.push_back(name);
  }
  return join(found, ", ");
}

}  // namespace gannet::files
