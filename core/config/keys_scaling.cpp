// Rows of the key table: elasticity, autotuning.
#include "config/keys.h"

namespace gannet::config {
namespace {

using enum Type;
using enum Status;

constexpr const char* kElasticity = "elasticity";
constexpr const char* kTuning = "autotuning";

constexpr Key kRows[] = {
    {"elasticity", kSection, "{}", kUnsupported, "", "batch sizes that fit many world sizes"},
    {"elasticity/enabled", kBool, "false", kUnsupported, "", "switches the section on", kElasticity},
    {"elasticity/max_train_batch_size", kInt, "2000", kUnsupported, ">=1", "largest batch", kElasticity},
    {"elasticity/micro_batch_sizes", kList, "[2, 4, 6]", kUnsupported, "", "micro-batches to choose from", kElasticity},
    {"elasticity/min_gpus", kInt, "1", kUnsupported, ">=1", "fewest ranks", kElasticity},
    {"elasticity/max_gpus", kInt, "10000", kUnsupported, ">=1", "most ranks", kElasticity},
    {"elasticity/num_gpus_per_node", kInt, "1", kUnsupported, ">=1", "ranks of a host", kElasticity},
    {"elasticity/model_parallel_size", kInt, "1", kUnsupported, ">=1", "ranks that share a model", kElasticity},
    {"elasticity/min_time", kInt, "0", kUnsupported, ">=0", "minutes between changes", kElasticity},
    {"elasticity/prefer_larger_batch", kBool, "true", kUnsupported, "", "prefer the larger of two equal choices", kElasticity},
    {"elasticity/ignore_non_elastic_batch_info", kBool, "false", kUnsupported, "", "ignore the keys of the batch", kElasticity},
    {"elasticity/version", kNumber, "0.2", kUnsupported, "0.1..0.2", "version of the rule", kElasticity},

    {"autotuning", kSection, "{}", kUnsupported, "", "try configs and keep the best"},
    {"autotuning/enabled", kBool, "false", kUnsupported, "", "switches the section on", kTuning},
    {"autotuning/fast", kBool, "true", kUnsupported, "", "only micro-batch and stage", kTuning},
    {"autotuning/results_dir", kString, "\"autotuning_results\"", kUnsupported, "", "folder", kTuning},
    {"autotuning/exps_dir", kString, "\"autotuning_exps\"", kUnsupported, "", "folder", kTuning},
    {"autotuning/overwrite", kBool, "true", kUnsupported, "", "replace old results", kTuning},
    {"autotuning/start_profile_step", kInt, "3", kUnsupported, ">=0", "first step measured", kTuning},
    {"autotuning/end_profile_step", kInt, "5", kUnsupported, ">=0", "last step measured", kTuning},
    {"autotuning/metric", kChoice, "\"throughput\"", kUnsupported, "latency|throughput|flops", "the figure to optimize", kTuning},
    {"autotuning/metric_path", kString, "null", kUnsupported, "", "file", kTuning},
    {"autotuning/tuner_type", kChoice, "\"gridsearch\"", kUnsupported, "gridsearch|random|model_based", "search", kTuning},
    {"autotuning/tuner_early_stopping", kInt, "5", kUnsupported, ">=0", "stop after this many trials without gain", kTuning},
    {"autotuning/tuner_num_trials", kInt, "50", kUnsupported, ">=1", "most trials", kTuning},
    {"autotuning/arg_mappings", kFree, "null", kUnsupported, "", "the program's arguments", kTuning},
    {"autotuning/max_train_batch_size", kInt, "null", kUnsupported, ">=1", "largest batch", kTuning},
    {"autotuning/min_train_batch_size", kInt, "1", kUnsupported, ">=1", "smallest batch", kTuning},
    {"autotuning/max_train_micro_batch_size_per_gpu", kInt, "1024", kUnsupported, ">=1", "largest micro-batch", kTuning},
    {"autotuning/min_train_micro_batch_size_per_gpu", kInt, "1", kUnsupported, ">=1", "smallest micro-batch", kTuning},
    {"autotuning/num_tuning_micro_batch_sizes", kInt, "3", kUnsupported, ">=1", "micro-batches tried", kTuning},
    {"autotuning/mp_size", kInt, "1", kUnsupported, ">=1", "ranks that share a model", kTuning},
    {"autotuning/model_info", kSection, "{}", kUnsupported, "", "known facts about the model"},
    {"autotuning/model_info/profile", kBool, "false", kUnsupported, "", "measure the model", kTuning},
    {"autotuning/model_info/num_params", kInt, "null", kUnsupported, ">=1", "parameters", kTuning},
    {"autotuning/model_info/hidden_size", kInt, "null", kUnsupported, ">=1", "width", kTuning},
    {"autotuning/model_info/num_layers", kInt, "null", kUnsupported, ">=1", "layers", kTuning},
    {"autotuning/model_info_path", kString, "null", kUnsupported, "", "file", kTuning},
};

}  // namespace

std::span<const Key> scaling_keys() { return kRows; }

}  // namespace gannet::config
