// Rows of the key table: tensor and expert parallelism, compiler, inference.
#include "config/keys.h"

namespace gannet::config {
namespace {

using enum Type;
using enum Status;

constexpr const char* kTp = "tensor parallelism";
constexpr const char* kEp = "expert parallelism";
constexpr const char* kCompile = "DeepSpeed's graph compiler";
constexpr const char* kHybrid = "the hybrid engine";
constexpr const char* kQuant = "weight quantization";

constexpr Key kRows[] = {
    {"tensor_parallel", kSection, "{}", kUnsupported, "", "split layers over ranks"},
    {"tensor_parallel/dtype", kString, "null", kUnsupported, "", "type of the split weights", kTp},
    {"tensor_parallel/autotp_size", kInt, "0", kUnsupported, ">=0", "ranks that share a layer; 0: off", kTp, "", "", "1"},
    {"tensor_parallel/tp_overlap_comm", kBool, "false", kUnsupported, "", "overlap communication", kTp},
    {"tensor_parallel/tp", kSection, "{}", kUnsupported, "", "the group"},
    {"tensor_parallel/tp/tp_size", kInt, "1", kUnsupported, ">=1", "ranks that share a layer", kTp},
    {"tensor_parallel/tp/tp_grain_size", kInt, "1", kUnsupported, ">=1", "smallest part of a dimension", kTp},
    {"tensor_parallel/tp/mpu", kAny, "null", kUnsupported, "", "an object of the program's", kTp},
    {"tensor_parallel/tp/tp_group", kAny, "null", kUnsupported, "", "a process group of the program's", kTp},
    {"tensor_parallel/injection_policy_tuple", kList, "null", kUnsupported, "", "layers to split", kTp},
    {"tensor_parallel/partition_config", kSection, "null", kUnsupported, "", "how each layer is split"},
    {"tensor_parallel/partition_config/tp_size", kInt, "1", kUnsupported, ">=1", "ranks that share a layer", kTp},
    {"tensor_parallel/partition_config/use_default_specs", kBool, "false", kUnsupported, "", "use the built-in rules too", kTp},
    {"tensor_parallel/partition_config/layer_specs", kList, "[]", kUnsupported, "",
     "rules: patterns, partition_type (column, row, skip), shape ...", kTp},
    {"tensor_parallel/partition_config/embedding_partition_dim", kInt, "1", kUnsupported, "",
     "dimension in which embeddings are split", kTp},
    {"tensor_parallel/partition_config/lm_head_patterns", kStrings, "[\"lm_head\", \"embed_out\"]", kUnsupported, "",
     "names of the output layer", kTp},
    {"tensor_parallel/partition_config/strict_mode", kBool, "false", kUnsupported, "", "a layer without a rule is an error", kTp},
    {"tensor_parallel/preset_model", kString, "null", kUnsupported, "",
     "rules for llama, bloom, chatglm, mixtral, deepseek_v2, qwen2, phi3", kTp},
    {"tensor_parallel/keep_module_on_host", kBool, "false", kUnsupported, "", "load in the host's memory", kTp},
    {"tensor_parallel/replace_with_kernel_inject", kBool, "false", kUnsupported, "", "replace layers by fused kernels", kTp,
     "kernel_inject"},

    {"expert_parallel", kOpenSection, "{}", kUnsupported, "", "split a mixture of experts over ranks"},
    {"expert_parallel/enabled", kBool, "false", kUnsupported, "", "switches the section on", kEp},
    {"expert_parallel/autoep_size", kInt, "1", kUnsupported, ">=1", "ranks that share the experts", kEp},
    {"expert_parallel/expert_tensor_parallel_size", kInt, "1", kUnsupported, ">=1", "ranks that share one expert", kEp},
    {"expert_parallel/preset_model", kString, "null", kUnsupported, "", "rules for a known model", kEp},
    {"expert_parallel/moe_layer_pattern", kString, "null", kUnsupported, "", "names of the layers", kEp},
    {"expert_parallel/expert_pattern", kString, "null", kUnsupported, "", "names of the experts", kEp},
    {"expert_parallel/router_pattern", kString, "null", kUnsupported, "", "names of the routers", kEp},
    {"expert_parallel/use_grouped_mm", kBool, "true", kUnsupported, "", "one grouped matrix product", kEp},
    {"expert_parallel/route_norm", kBool, "null", kUnsupported, "", "normalise the routing weights", kEp},
    {"expert_parallel/route_scale", kNumber, "1.0", kUnsupported, "", "scale of the routing weights", kEp},
    {"expert_parallel/score_func", kString, "\"auto\"", kUnsupported, "", "softmax or sigmoid", kEp},
    {"expert_parallel/score_apply", kString, "\"auto\"", kUnsupported, "", "where scores are applied", kEp},
    {"expert_parallel/combine_impl", kString, "\"auto\"", kUnsupported, "", "how outputs are combined", kEp},
    {"expert_parallel/top_k", kAny, "\"auto\"", kUnsupported, "", "experts per token", kEp},
    {"expert_parallel/routed_scaling_factor", kAny, "\"auto\"", kUnsupported, "", "scale of the experts' output", kEp},
    {"expert_parallel/num_expert_groups", kInt, "null", kUnsupported, ">=1", "groups of experts", kEp},
    {"expert_parallel/num_limited_groups", kInt, "null", kUnsupported, ">=1", "groups a token may use", kEp},

    {"compile", kSection, "{}", kUnsupported, "", "DeepSpeed's graph compiler"},
    {"compile/deepcompile", kBool, "false", kUnsupported, "", "switches the section on", kCompile},
    {"compile/free_activation", kBool, "false", kUnsupported, "", "free activations early", kCompile},
    {"compile/free_activation_threshold", kSize, "10485760", kUnsupported, ">=0", "bytes above which they are", kCompile},
    {"compile/offload_activation", kBool, "false", kUnsupported, "", "move activations to the host", kCompile},
    {"compile/offload_activation_pin_memory", kBool, "true", kUnsupported, "", "to page-locked memory", kCompile},
    {"compile/offload_opt_states", kBool, "false", kUnsupported, "", "move optimizer states to the host", kCompile},
    {"compile/double_buffer", kBool, "true", kUnsupported, "", "two buffers", kCompile},
    {"compile/symmetric_memory", kBool, "false", kUnsupported, "", "symmetric memory", kCompile},
    {"compile/debug_log", kBool, "false", kUnsupported, "", "log more", kCompile},
    {"compile/offload_parameters", kBool, "false", kUnsupported, "", "move parameters to the host", kCompile},
    {"compile/sync_before_reduce", kBool, "false", kUnsupported, "", "wait before a reduce", kCompile},
    {"compile/sync_after_reduce", kBool, "false", kUnsupported, "", "wait after a reduce", kCompile},
    {"compile/sync_before_allgather", kBool, "false", kUnsupported, "", "wait before an all-gather", kCompile},
    {"compile/sync_after_allgather", kBool, "false", kUnsupported, "", "wait after an all-gather", kCompile},
    {"compile/keep_int_input_tensors", kBool, "true", kUnsupported, "", "keep integer inputs", kCompile},
    {"compile/keep_all_input_tensors", kBool, "false", kUnsupported, "", "keep all inputs", kCompile},
    {"compile/passes", kStrings, "null", kUnsupported, "", "among z1, z3, autosp, autotp", kCompile},

    {"hybrid_engine", kSection, "{}", kUnsupported, "", "training and fast generation in one engine"},
    {"hybrid_engine/enabled", kBool, "false", kUnsupported, "", "switches the section on", kHybrid},
    {"hybrid_engine/max_out_tokens", kInt, "512", kUnsupported, ">=1", "longest text", kHybrid},
    {"hybrid_engine/inference_tp_size", kInt, "1", kUnsupported, ">=1", "ranks that share a layer in generation", kHybrid},
    {"hybrid_engine/release_inference_cache", kBool, "false", kUnsupported, "", "free the cache afterwards", kHybrid},
    {"hybrid_engine/pin_parameters", kBool, "true", kUnsupported, "", "keep parameters whole", kHybrid},
    {"hybrid_engine/tp_gather_partition_size", kInt, "8", kUnsupported, ">=1", "parts of a gather", kHybrid},
    {"hybrid_engine/enable_cuda_graph", kBool, "false", kUnsupported, "", "capture generation as a CUDA graph", kHybrid},

    {"weight_quantization", kSection, "{}", kUnsupported, "", "weights in 4 or 8 bits for inference with ZeRO"},
    {"weight_quantization/enabled", kBool, "true", kUnsupported, "", "switches the section on", kQuant, "", "", "false"},
    {"weight_quantization/num_bits", kInt, "8", kUnsupported, ">=1", "bits", kQuant},
    {"weight_quantization/q_type", kChoice, "\"symmetric\"", kUnsupported, "symmetric|asymmetric", "kind", kQuant},
    {"weight_quantization/q_groups", kInt, "1", kUnsupported, ">=1", "groups of a tensor", kQuant},
    {"weight_quantization/quantized_initialization", kFree, "{}", kUnsupported, "", "quantise while the model is built", kQuant},
    {"weight_quantization/post_init_quant", kFree, "{}", kUnsupported, "", "quantise these layers afterwards", kQuant},
};

}  // namespace

std::span<const Key> parallel_keys() { return kRows; }

}  // namespace gannet::config
