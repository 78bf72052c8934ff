// Rows of the key table: checkpoints, asynchronous I/O, pipelines.
#include "config/row.h"

namespace gannet::config {
namespace {

using enum Type;
using enum Status;

constexpr const char* kCheckpoint = "checkpoints are in Gannet's own format";
constexpr const char* kPartitioned = "what passes between stages is sent whole";

constexpr Key kRows[] = {
    {"checkpoint", kSection, "{}", kActive, "", "how checkpoints are written"},
    row("checkpoint/tag_validation", member<&Settings::tag_validation>, kWord, "\"WARN\"", "Ignore|Warn|Fail",
        "when the ranks' tags differ: rank 0's is used, or an error"),
    {"checkpoint/load_universal", kBool, "false", kUnsupported, "", "load a checkpoint in DeepSpeed's universal format",
     kCheckpoint},
    row("checkpoint/use_node_local_storage", member<&Settings::checkpoint_on_each_machine>, kBool, "false", "",
        "each machine stores its ranks' files in its own folder of the same path"),
    {"checkpoint/parallel_write", kSection, "{}", kUnsupported, "", "which ranks write"},
    {"checkpoint/parallel_write/pipeline_stage", kBool, "false", kUnsupported, "", "each pipeline stage writes its own part",
     kCheckpoint},
    {"checkpoint/checkpoint_serialization", kBool, "true", kUnsupported, "", "false: the pickle format of old PyTorch",
     kCheckpoint},
    {"checkpoint/writer", kSection, "null", kUnsupported, "", "DeepSpeed's FastPersist"},
    {"checkpoint/writer/type", kWord, "\"FAST\"", kUnsupported, "MOCK|PYTHON|FAST", "kind of writer", "DeepSpeed's FastPersist"},
    {"checkpoint/writer/io_buffer_size", kSize, "67108864", kUnsupported, ">=1", "bytes of its buffer",
     "DeepSpeed's FastPersist"},
    {"checkpoint/writer/io_buffer_double", kBool, "true", kUnsupported, "", "two buffers", "DeepSpeed's FastPersist"},
    {"checkpoint/writer/show_statistics", kBool, "false", kUnsupported, "", "log its speed", "DeepSpeed's FastPersist"},
    {"checkpoint/writer/data_parallel", kWord, "null", kUnsupported, "REPLICA|SOCKET|MACHINE", "which ranks write",
     "DeepSpeed's FastPersist"},
    {"checkpoint/writer/decoupled", kBool, "false", kUnsupported, "", "write while training continues",
     "DeepSpeed's FastPersist"},
    {"checkpoint/writer/io_multiplier", kInt, "1", kUnsupported, ">=1", "writers per rank", "DeepSpeed's FastPersist"},
    {"nebula", kSection, "{}", kUnsupported, "", "asynchronous checkpoints by Azure's Nebula"},
    {"nebula/enabled", kBool, "false", kUnsupported, "", "switches the section on", "checkpoints by Nebula"},
    {"nebula/persistent_storage_path", kString, "null", kUnsupported, "", "folder", "checkpoints by Nebula"},
    {"nebula/persistent_time_interval", kInt, "100", kUnsupported, "", "seconds between saves", "checkpoints by Nebula"},
    {"nebula/num_of_version_in_retention", kInt, "2", kUnsupported, "", "checkpoints kept", "checkpoints by Nebula"},
    {"nebula/enable_nebula_load", kBool, "true", kUnsupported, "", "load from it", "checkpoints by Nebula"},
    {"nebula/nebula_load_path", kString, "null", kUnsupported, "", "folder to load from", "checkpoints by Nebula"},
    {"datastates_ckpt", kAny, "false", kUnsupported, "", "asynchronous checkpoints by DataStates", "checkpoints by DataStates"},

    {"aio", kSection, "{}", kActive, "", "asynchronous I/O of the nvme offload"},
    row("aio/block_size", entry<&Settings::aio>, kSize, "1048576", ">=1", "bytes of a request", kWithNvme),
    row("aio/queue_depth", entry<&Settings::aio>, kInt, "8", ">=1", "requests in flight", kWithNvme),
    row("aio/intra_op_parallelism", entry<&Settings::aio>, kInt, "1", ">=1", "threads of one transfer", kWithNvme),
    row("aio/single_submit", entry<&Settings::aio>, kBool, "false", "", "submit requests one by one", kWithNvme),
    row("aio/overlap_events", entry<&Settings::aio>, kBool, "true", "", "submit while completions arrive", kWithNvme),
    {"aio/use_gds", kBool, "false", kUnsupported, "", "GPUDirect storage", "GPUDirect storage"},
    {"aio/thread_count", kInt, "1", kNoEffect, "", "old name of intra_op_parallelism",
     "DeepSpeed does not use it either; write intra_op_parallelism"},

    {"pipeline", kSection, "{}", kActive, "", "pipeline parallelism (docs/pipeline.md)"},
    row("pipeline/stages", member<&Settings::pipeline_stages>, kInt, "null", ">=1",
        "ranks along the mesh's axis pipe; null or auto: as the program or gannet.mesh.pipe says"),
    row("pipeline/partition", entry<&Settings::pipeline>, kString, "\"best\"", "",
        "how layers are divided among stages: uniform, parameters, type:REGEX, time, memory; best: as the program says"),
    row("pipeline/seed_layers", entry<&Settings::pipeline>, kBool, "false", "", "a random seed for each layer"),
    row("pipeline/activation_checkpoint_interval", entry<&Settings::pipeline>, kInt, "0", ">=0",
        "layers in a region of activation checkpointing; 0: as the program or gannet.activation_checkpointing says"),
    {"pipeline/pipe_partitioned", kBool, "true", kNoEffect, "", "shard activations on the way", kPartitioned},
    {"pipeline/grad_partitioned", kBool, "true", kNoEffect, "", "shard gradients on the way", kPartitioned},
    {"pipeline/use_reentrant", kBool, "true", kNoEffect, "", "the reentrant kind of checkpointing",
     "regions are the same either way (docs/activation.md)"},
};

}  // namespace

std::span<const Key> storage_keys() { return kRows; }

}  // namespace gannet::config
