// A Gannet checkpoint in DeepSpeed's terms: parameter groups in order, with their optimizer's
// states and hyperparameters, and the run's counters. write_deepspeed.h writes it.
#pragma once

#include <gannet/value.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "convert/renaming.h"

namespace gannet::convert {

inline constexpr const char* kDeepSpeedVersion = "0.19.6";  // the version whose layout is written

struct ToDeepSpeedOptions {
  Renames renames;  // prefix -> replacement
  // The other names of tied parameters, and the names that they have after `renames`:
  // {"lm_head.weight", "transformer.wte.weight"}.
  std::vector<std::pair<std::string, std::string>> tied;
};

struct SourceTensor {
  std::string name;    // DeepSpeed's
  std::string stored;  // in the checkpoint, without its kind: "parameter/" and "state/exp_avg/" precede it
  std::vector<int64_t> shape;
  int64_t numel = 0;
};

struct SourceGroup {
  std::vector<SourceTensor> tensors;
  Dict hyper;  // "lr", "betas[0]" ...
  int64_t numel() const;
};

// The names that DeepSpeed's optimizer uses for its states and keys.
enum class OptimizerFamily { kAdam, kSgd, kLion };

struct DeepSpeedSource {
  const checkpoint::Opened& from;
  std::vector<SourceGroup> groups = {};
  // Untrained tensors, in their own dtype; `stored` is then the whole name.
  std::vector<SourceTensor> frozen = {}, buffers = {};
  std::vector<std::pair<std::string, std::string>> tied = {};  // another name, and the name of the stored tensor

  OptimizerFamily family = OptimizerFamily::kAdam;
  bool is_torch_optimizer = false;       // torch's own class, whose step is a tensor
  bool is_decay_decoupled = false;       // AdamW's
  std::vector<std::string> states = {};  // of `family`; states of a tensor that has none are zeros
  std::string precision = {};            // "fp32", "bf16", "fp16"
  c10::ScalarType model_dtype = c10::kFloat;
  int64_t global_steps = 0, applied_steps = 0, skipped_steps = 0, global_samples = 0, schedule_position = 0;
  int64_t accumulation_steps = 1;
  std::vector<std::string> left_out = {};  // what DeepSpeed's files cannot hold, each with a reason

  // A value of the run's config: config_value("/fp16/loss_scale_window"); null if the checkpoint has none.
  const Value* config_value(const std::string& path) const;
  std::set<std::string> state_names() const;  // of the checkpoint: "exp_avg" ...
  // The booleans of the optimizer's first group in the save that was imported; null if a run of Gannet saved the checkpoint.
  const Dict* imported_flags() const;
  // A member of the document's "loss_scaler".
  const Value& scaler(const std::string& key) const;
  bool is_scale_dynamic() const;  // of an fp16 run
};

// Throws Error(kUnsupported) for an optimizer whose states DeepSpeed's ZeRO does not load, Error(kMismatch)
// if the groups' tensors are not recorded, and Error(kArgument) for a renaming or a tie that fits no tensor.
DeepSpeedSource deepspeed_source(const checkpoint::Opened& from, const ToDeepSpeedOptions& options);

}  // namespace gannet::convert
