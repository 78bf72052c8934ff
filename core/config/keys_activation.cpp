// Rows of the key table: DeepSpeed's section on activation checkpointing, and Gannet's own block
// for it.
#include "config/row.h"

namespace gannet::config {
namespace {

using enum Type;
using enum Status;

template <auto member_of_section>
constexpr Member in_section = member<&Settings::activation_checkpointing, member_of_section>;
using Section = ActivationCheckpointing;

constexpr Key kRows[] = {
    {"activation_checkpointing", kSection, "{}", kActive, "", "what regions of activation checkpointing keep, and where"},
    row("activation_checkpointing/partition_activations", in_section<&Section::partition_activations>, kBool, "false", "",
        "shard the inputs of regions over the tensor axis"),
    row("activation_checkpointing/cpu_checkpointing", in_section<&Section::cpu_checkpointing>, kBool, "false", "",
        "keep the inputs of regions in the host's memory, or on gannet.activation_checkpointing.device"),
    row("activation_checkpointing/contiguous_memory_optimization", in_section<&Section::contiguous_memory_optimization>, kBool,
        "false", "", "copy the inputs of regions into one buffer for each argument, with number_checkpoints slots"),
    row("activation_checkpointing/number_checkpoints", in_section<&Section::number_checkpoints>, kInt, "null", ">=1",
        "regions that run_layers makes of a model's layers, and slots of contiguous_memory_optimization"),
    row("activation_checkpointing/synchronize_checkpoint_boundary", in_section<&Section::synchronize_checkpoint_boundary>, kBool,
        "false", "", "wait for the device at the begin and end of each region"),
    row("activation_checkpointing/profile", in_section<&Section::profile>, kBool, "false", "",
        "log the times of each region's forward and recomputation, and put them into the trace"),

    {"gannet/activation_checkpointing", kSection, "{}", kActive, "", "what DeepSpeed's section of that name lacks"},
    row("gannet/activation_checkpointing/device", in_section<&Section::device>, kString, "\"cpu\"", "",
        "the Offload plugin that cpu_checkpointing keeps the inputs of regions on: cpu, nvme"),
    row("gannet/activation_checkpointing/nvme_path", in_section<&Section::nvme_path>, kString, "null", "",
        "folder on the drive; null: offload_optimizer's or offload_param's"),
    row("gannet/activation_checkpointing/recompute", in_section<&Section::recompute>, kStrings, "[]", "",
        "operators whose results are dropped and computed again: gelu, layer_norm ..."),
    row("gannet/activation_checkpointing/keep", in_section<&Section::keep>, kString, "\"device\"", "",
        "where tensors that operators save for backward are kept: device, or an Offload plugin (cpu, nvme)"),
    row("gannet/activation_checkpointing/interval", in_section<&Section::interval>, kInt, "null", ">=1",
        "layers in each region that run_layers makes, in place of number_checkpoints"),
    row("gannet/activation_checkpointing/memory_limit", in_section<&Section::memory_limit>, kBytes, "null", ">=1",
        "what layers keep for backward; run_layers recomputes those that save most bytes a second"),
};

}  // namespace

std::span<const Key> activation_keys() { return kRows; }

}  // namespace gannet::config
