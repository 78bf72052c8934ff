// Rows of the key table: batch sizes, optimizer and scheduler, gradients, logging, and Gannet's own blocks.
#include "config/keys.h"

namespace gannet::config {
namespace {

using enum Type;
using enum Status;

constexpr const char* kNoZero = "it chooses among DeepSpeed's optimizers under ZeRO";

constexpr Key kRows[] = {
    {"train_batch_size", kInt, "null", kActive, ">=1", "samples per optimizer step, over all ranks and micro-batches"},
    {"train_micro_batch_size_per_gpu", kInt, "null", kActive, ">=1", "samples per rank in one forward and backward"},
    {"gradient_accumulation_steps", kInt, "null", kActive, ">=1", "micro-batches per optimizer step"},
    {"managed_gradient_accumulation", kBool, "true", kUnsupported, "",
     "the engine counts micro-batches to find the accumulation boundary", "boundaries that the program sets itself"},

    {"optimizer", kSection, "null", kActive, "", "the optimizer plugin"},
    {"optimizer/type", kString, "null", kActive, "", "name of the plugin: Adam, AdamW, SGD ..."},
    {"optimizer/params", kFree, "{}", kActive, "", "the plugin's parameters: `gannet plugins info NAME` lists them"},
    {"optimizer/legacy_fusion", kBool, "false", kNoEffect, "", "DeepSpeed's older fp16 path",
     "it chooses among DeepSpeed's fp16 wrappers"},
    {"scheduler", kSection, "null", kActive, "", "the learning rate's schedule, a plugin"},
    {"scheduler/type", kString, "null", kActive, "",
     "name of the plugin: WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle, LRRangeTest"},
    {"scheduler/params", kFree, "{}", kActive, "", "the plugin's parameters: `gannet plugins info NAME` lists them"},

    {"gradient_clipping", kNumber, "1.0", kActive, ">=0", "largest global 2-norm of the gradient; 0 switches clipping off"},
    {"gradient_allreduce_op", kWord, "\"mean\"", kActive, "mean|sum",
     "sum: add the gradients of the ranks instead of averaging them"},
    {"prescale_gradients", kBool, "false", kActive, "", "divide before the all-reduce, not after it"},
    {"gradient_predivide_factor", kNumber, "1.0", kActive, ">0",
     "with prescale_gradients: the part of the division done before the all-reduce"},
    {"communication_data_type", kWord, "null", kActive, "fp32|fp16|bf16", "type of gradients on the wire; null: the model's"},
    {"seq_parallel_communication_data_type", kWord, "\"fp32\"", kNoEffect, "fp32|fp16|bf16",
     "type of gradients on the wire between sequence-parallel ranks", "there is no sequence parallelism"},
    {"sparse_gradients", kBool, "false", kUnsupported, "", "reduce the gradients of embeddings as sparse tensors",
     "sparse gradients"},
    {"disable_allgather", kBool, "false", kNoEffect, "", "read by DeepSpeed and not used", "DeepSpeed does not use it either"},
    {"allgather_size", kSize, "500000000", kNoEffect, ">=1", "bucket of the all-gather, with the old boolean zero_optimization",
     "it belongs to ZeRO 1 and above"},
    {"zero_allow_untested_optimizer", kBool, "false", kNoEffect, "", "allow any optimizer under ZeRO", kNoZero},
    {"zero_force_ds_cpu_optimizer", kBool, "true", kNoEffect, "", "refuse other optimizers than DeepSpeed's with offload",
     kNoZero},
    {"use_data_before_expert_parallelism", kBool, "false", kUnsupported, "", "order of data and expert ranks",
     "mixtures of experts"},
    {"graph_harvesting", kBool, "false", kUnsupported, "", "capture steps as CUDA graphs", "CUDA graphs"},
    {"sequence_parallel_size", kInt, "null", kUnsupported, ">=1", "ranks that share one sequence", "sequence parallelism", "", "",
     "1"},
    {"data_parallel_size", kInt, "null", kUnsupported, ">=1", "ranks that share the data, with sequence_parallel_size",
     "sequence parallelism"},

    {"steps_per_print", kInt, "null", kActive, ">=1", "steps between two lines with step, loss and learning rate; null: never"},
    {"wall_clock_breakdown", kBool, "false", kActive, "", "log the time of each phase of a step"},
    {"memory_breakdown", kBool, "false", kUnsupported, "", "log memory around forward, backward and step", "the memory log"},
    {"dump_state", kBool, "false", kActive, "", "log every effective value of the config at the start"},
    {"log_level", kWord, "null", kActive, "debug|info|warning|error|critical", "lowest level that is logged"},
    {"dataloader_drop_last", kBool, "false", kActive, "", "drop the last batch when it is not full"},
    {"vocabulary_size", kInt, "null", kNoEffect, ">=1", "size of the vocabulary, for a warning",
     "DeepSpeed only checks it for multiples of 8"},

    {"accelerator", kSection, "{}", kActive, "", "Gannet: the device plugin"},
    {"accelerator/type", kString, "\"auto\"", kActive, "", "cpu, cuda ...; auto: the best that is usable"},
    {"accelerator/params", kFree, "{}", kActive, "", "the plugin's parameters"},
    {"comm", kSection, "{}", kActive, "", "Gannet: the plugin that connects the ranks"},
    {"comm/type", kString, "\"auto\"", kActive, "", "local, gloo ...; auto: the best that is usable"},
    {"comm/host", kString, "\"auto\"", kActive, "", "for numbers and texts of the host: a plugin that serves its memory"},
    {"comm/params", kFree, "{}", kActive, "", "the plugin's parameters"},
    {"plugins", kSection, "{}", kActive, "", "Gannet: where to search for plugins"},
    {"plugins/allow", kStrings, "[]", kActive, "",
     "plugin files or folders to accept although every user of the machine may write them"},
    {"plugins/path", kStrings, "[]", kActive, "", "files or folders to search before all others"},
    {"gannet", kSection, "{}", kActive, "", "Gannet: all other settings of its own"},
    {"gannet/mesh", kSection, "{}", kActive, "", "how the ranks are laid out over the axes of parallelism"},
    {"gannet/mesh/pipe", kInt, "1", kActive, ">=1", "stages of a pipeline"},
    {"gannet/mesh/data", kInt, "null", kActive, ">=1", "ranks with data of their own; null: what the other axes leave"},
    {"gannet/mesh/tensor", kInt, "1", kActive, ">=1", "ranks that share each layer"},
    {"gannet/leftover_micro_batches", kChoice, "\"carry\"", kActive, "carry|drop",
     "micro-batches at an epoch's end that fill no step: kept for the next epoch, or dropped"},
    {"gannet/seed", kInt, "0", kActive, "", "seed of the loader's shuffling"},
    {"gannet/shuffle", kBool, "true", kActive, "", "shuffle the samples, in a different order in each epoch"},
    {"gannet/data_workers", kInt, "1", kActive, "0..1024", "threads that prepare batches; 0: the caller's thread"},
    {"gannet/check_memory", kBool, "true", kActive, "",
     "refuse a run that needs more memory than the machine has, before it starts"},
    {"gannet/max_consecutive_skips", kInt, "25", kActive, ">=1", "abort after more than this many consecutive skipped steps"},
    {"gannet/checkpoint", kSection, "{}", kActive, "", "how save_checkpoint works"},
    {"gannet/checkpoint/async", kBool, "false", kActive, "", "write in the background, from a copy, while training continues"},
    {"gannet/checkpoint/keep", kInt, "0", kActive, ">=0", "number of newest checkpoints to keep in a folder; 0: all"},
    {"gannet/metrics", kSection, "{}", kActive, "",
     "a file with the metrics of every step, written during the run (docs/metrics.md)"},
    {"gannet/metrics/path", kString, "null", kActive, "",
     "JSON lines: the run, its steps and events, appended by rank 0; null: none"},
    {"gannet/trace", kSection, "{}", kActive, "", "the phases of some steps, for Perfetto or chrome://tracing"},
    {"gannet/trace/path", kString, "null", kActive, "",
     "JSON file; {rank} is replaced by the rank, else ranks above 0 write next to it; null: none"},
    {"gannet/trace/first_step", kInt, "10", kActive, ">=1", "the first step that is traced, counted from 1"},
    {"gannet/trace/last_step", kInt, "12", kActive, ">=1", "the last one"},
    {"gannet/fingerprint_every", kInt, "100", kActive, ">=0",
     "steps between comparisons of the parameters that every rank holds whole (also at each save); 0: never", ""},
    {"gannet/timeout_seconds", kNumber, "null", kActive, ">0",
     "deadline of rendezvous and collectives; null: DEEPSPEED_TIMEOUT (minutes), else 600"},
    {"gannet/deadline_seconds", kNumber, "null", kActive, ">0",
     "how long a collective call waits for a rank that is alive but late; null: the process group's time-out"},
};

}  // namespace

std::span<const Key> training_keys() { return kRows; }

}  // namespace gannet::config
