// Rows of the key table: data efficiency, curricula, sparse attention, compression.
#include "config/keys.h"

namespace gannet::config {
namespace {

using enum Type;
using enum Status;

constexpr const char* kCurriculum = "curriculum learning";
constexpr const char* kData = "DeepSpeed's data efficiency";
constexpr const char* kEigenvalue = "DeepSpeed does not use it there either";
constexpr const char* kSparse = "DeepSpeed only reads it";
constexpr const char* kCompression = "compression while training";

constexpr Key kRows[] = {
    {"progressive_layer_drop", kSection, "{}", kUnsupported, "", "skip a growing number of layers"},
    {"progressive_layer_drop/enabled", kBool, "false", kUnsupported, "", "switches the section on", "progressive layer drop"},
    {"progressive_layer_drop/theta", kNumber, "1.0", kUnsupported, "0..1", "final share of layers kept",
     "progressive layer drop"},
    {"progressive_layer_drop/gamma", kNumber, "0.001", kUnsupported, ">=0", "speed", "progressive layer drop"},
    {"curriculum_learning", kSection, "{}", kUnsupported, "", "easier samples first (the older form)"},
    {"curriculum_learning/enabled", kBool, "false", kUnsupported, "", "switches the section on", kCurriculum},
    {"curriculum_learning/curriculum_type", kString, "null", kUnsupported, "", "measure of difficulty", kCurriculum},
    {"curriculum_learning/min_difficulty", kInt, "null", kUnsupported, "", "difficulty at the start", kCurriculum},
    {"curriculum_learning/max_difficulty", kInt, "null", kUnsupported, "", "final difficulty", kCurriculum},
    {"curriculum_learning/schedule_type", kChoice, "null", kUnsupported, "fixed_linear|fixed_root|fixed_discrete|custom",
     "growth of the difficulty", kCurriculum},
    {"curriculum_learning/schedule_config", kFree, "{}", kUnsupported, "", "the schedule's parameters", kCurriculum},

    {"data_efficiency", kSection, "{}", kUnsupported, "", "curricula, dynamic batches, random layerwise token dropping"},
    {"data_efficiency/enabled", kBool, "false", kUnsupported, "", "switches the section on", kData},
    {"data_efficiency/seed", kInt, "1234", kUnsupported, "", "seed", kData},
    {"data_efficiency/data_sampling", kSection, "{}", kUnsupported, "", "which samples"},
    {"data_efficiency/data_sampling/enabled", kBool, "false", kUnsupported, "", "switches the section on", kData},
    {"data_efficiency/data_sampling/num_epochs", kInt, "1000", kUnsupported, ">=1", "epochs", kData},
    {"data_efficiency/data_sampling/num_workers", kInt, "0", kUnsupported, ">=0", "workers of the loader", kData},
    {"data_efficiency/data_sampling/pin_memory", kBool, "false", kUnsupported, "", "page-locked memory", kData},
    {"data_efficiency/data_sampling/curriculum_learning", kOpenSection, "{}", kUnsupported, "", "easier samples first"},
    {"data_efficiency/data_sampling/curriculum_learning/enabled", kBool, "false", kUnsupported, "", "switches the section on",
     kData},
    {"data_efficiency/data_sampling/curriculum_learning/curriculum_metrics", kFree, "{}", kUnsupported, "",
     "measures of difficulty", kData},
    {"data_efficiency/data_sampling/curriculum_learning/data_cluster_path", kString, "null", kUnsupported, "", "folder", kData},
    {"data_efficiency/data_sampling/dynamic_batching", kSection, "{}", kUnsupported, "",
     "batches of about the same number of tokens"},
    {"data_efficiency/data_sampling/dynamic_batching/enabled", kBool, "false", kUnsupported, "", "switches the section on",
     kData},
    {"data_efficiency/data_sampling/dynamic_batching/lr_scaling_method", kString, "\"linear\"", kUnsupported, "",
     "learning rate by batch size", kData},
    {"data_efficiency/data_sampling/dynamic_batching/min_batch_size", kInt, "1", kUnsupported, ">=1", "smallest batch", kData},
    {"data_efficiency/data_sampling/dynamic_batching/max_batch_size", kInt, "null", kUnsupported, ">=1", "largest batch", kData},
    {"data_efficiency/data_sampling/dynamic_batching/sequence_picking_order", kString, "\"dataloader\"", kUnsupported, "",
     "order of sequences", kData},
    {"data_efficiency/data_sampling/dynamic_batching/max_tokens", kInt, "null", kUnsupported, ">=1", "tokens of a batch", kData},
    {"data_efficiency/data_sampling/dynamic_batching/metrics_path", kString, "null", kUnsupported, "", "folder", kData},
    {"data_efficiency/data_sampling/dynamic_batching/verbose", kBool, "false", kUnsupported, "", "log more", kData},
    {"data_efficiency/data_routing", kSection, "{}", kUnsupported, "", "which tokens in which layer"},
    {"data_efficiency/data_routing/enabled", kBool, "false", kUnsupported, "", "switches the section on", kData},
    {"data_efficiency/data_routing/random_ltd", kOpenSection, "{}", kUnsupported, "", "random layerwise token dropping"},
    {"data_efficiency/data_routing/random_ltd/enabled", kBool, "false", kUnsupported, "", "switches the section on", kData},
    {"data_efficiency/data_routing/random_ltd/layer_token_lr_schedule", kOpenSection, "{}", kUnsupported, "",
     "learning rate by tokens"},
    {"data_efficiency/data_routing/random_ltd/layer_token_lr_schedule/enabled", kBool, "false", kUnsupported, "",
     "switches the section on", kData},

    {"eigenvalue", kSection, "{}", kNoEffect, "", "curvature, for quantization"},
    {"eigenvalue/enabled", kBool, "false", kNoEffect, "", "switches the section on", kEigenvalue},
    {"eigenvalue/verbose", kBool, "false", kNoEffect, "", "log more", kEigenvalue},
    {"eigenvalue/max_iter", kInt, "100", kNoEffect, ">=1", "iterations", kEigenvalue},
    {"eigenvalue/tol", kNumber, "0.01", kNoEffect, ">=0", "tolerance", kEigenvalue},
    {"eigenvalue/stability", kNumber, "1e-6", kNoEffect, ">=0", "added to the divisor", kEigenvalue},
    {"eigenvalue/gas_boundary_resolution", kInt, "1", kNoEffect, ">=1", "steps between two computations", kEigenvalue},
    {"eigenvalue/layer_name", kString, "\"bert.encoder.layer\"", kNoEffect, "", "layers", kEigenvalue},
    {"eigenvalue/layer_num", kInt, "0", kNoEffect, ">=0", "number of layers", kEigenvalue},
    {"quantize_training", kOpenSection, "{}", kUnsupported, "", "quantize weights while training (the oldest form)"},
    {"quantize_training/enabled", kBool, "false", kUnsupported, "", "switches the section on", "quantization while training"},

    {"sparse_attention", kSection, "{}", kNoEffect, "", "patterns of sparse attention"},
    {"sparse_attention/mode", kChoice, "\"fixed\"", kNoEffect, "dense|fixed|variable|bigbird|bslongformer", "pattern", kSparse},
    {"sparse_attention/block", kInt, "16", kNoEffect, ">=1", "tokens of a block", kSparse},
    {"sparse_attention/different_layout_per_head", kBool, "false", kNoEffect, "", "a pattern per head", kSparse},
    {"sparse_attention/num_local_blocks", kInt, "4", kNoEffect, ">=0", "local blocks", kSparse},
    {"sparse_attention/num_global_blocks", kInt, "1", kNoEffect, ">=0", "blocks that see all", kSparse},
    {"sparse_attention/attention", kChoice, "\"bidirectional\"", kNoEffect, "unidirectional|bidirectional", "direction", kSparse},
    {"sparse_attention/horizontal_global_attention", kBool, "false", kNoEffect, "", "all see the global blocks", kSparse},
    {"sparse_attention/num_different_global_patterns", kInt, "1", kNoEffect, ">=1", "patterns", kSparse},
    {"sparse_attention/num_random_blocks", kInt, "0", kNoEffect, ">=0", "random blocks", kSparse},
    {"sparse_attention/local_window_blocks", kList, "[4]", kNoEffect, "", "windows", kSparse},
    {"sparse_attention/global_block_indices", kList, "[0]", kNoEffect, "", "global blocks", kSparse},
    {"sparse_attention/global_block_end_indices", kList, "null", kNoEffect, "", "ends of the global blocks", kSparse},
    {"sparse_attention/num_sliding_window_blocks", kInt, "3", kNoEffect, ">=0", "blocks of the sliding window", kSparse},

    {"compression_training", kSection, "{}", kUnsupported, "", "quantize and prune while training"},
    {"compression_training/layer_reduction", kFree, "{}", kUnsupported, "", "train fewer layers from a teacher", kCompression},
    {"compression_training/weight_quantization", kFree, "{}", kUnsupported, "", "quantize weights", kCompression},
    {"compression_training/activation_quantization", kFree, "{}", kUnsupported, "", "quantize activations", kCompression},
    {"compression_training/sparse_pruning", kFree, "{}", kUnsupported, "", "prune weights", kCompression},
    {"compression_training/row_pruning", kFree, "{}", kUnsupported, "", "prune rows", kCompression},
    {"compression_training/head_pruning", kFree, "{}", kUnsupported, "", "prune heads", kCompression},
    {"compression_training/channel_pruning", kFree, "{}", kUnsupported, "", "prune channels", kCompression},
};

}  // namespace

std::span<const Key> data_keys() { return kRows; }

}  // namespace gannet::config
