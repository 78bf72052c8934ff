// The objects that all layouts of DeepSpeed's files have in common: the model's file, parameter
// groups, the loss scaler.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "convert/deepspeed_file.h"
#include "convert/deepspeed_source.h"

namespace gannet::convert {

// Writes the files of one export into a folder, and counts them.
struct FolderWriting {
  const DeepSpeedSource& source;
  const std::string& folder;
  uint64_t& files;
  uint64_t& bytes;
  void write(DeepSpeedFile file, const std::string& name) const;
};

struct ModelFileLayout {
  int64_t stage = 0, ranks = 1, rank = 0;
  bool is_universal = false;
  // The flat buffers that param_shapes lists: the groups or, at stage 3, their sub-groups.
  std::vector<std::vector<const SourceTensor*>> buffers = {};
};

// The file of the model. `write_optimizer` adds the object of stage 0's optimizer; null: None.
DeepSpeedFile model_file(const DeepSpeedSource& source, const ModelFileLayout& layout,
                         const std::function<void(DeepSpeedFile&)>& write_optimizer = nullptr);

// The optimizer's param_groups, with the numbers of the tensors that each group has.
void write_param_groups(DeepSpeedFile& file, const DeepSpeedSource& source, const std::vector<std::vector<int64_t>>& params);
// The keys "step", "exp_avg" ... and their values. `parts(state)`: the parts of a state's tensor.
void write_states(DeepSpeedFile& file, const DeepSpeedSource& source, const std::vector<int64_t>& shape,
                  const std::function<TensorParts(const std::string& state)>& parts);
bool has_step(const DeepSpeedSource& source);
void write_step(DeepSpeedFile& file, const DeepSpeedSource& source);
// The keys loss_scaler, dynamic_loss_scale and overflow of ZeRO's optimizers.
void write_scaler(DeepSpeedFile& file, const DeepSpeedSource& source);

// The parts of a tensor's elements [begin, end). `kind`: "parameter", "state/exp_avg" ...; a state
// that is not in the checkpoint reads as zeros.
TensorParts parts_of(const DeepSpeedSource& source, const std::string& kind, const SourceTensor& tensor, int64_t begin,
                     int64_t end);

// A value of the run's config, or `otherwise`.
double number_of(const DeepSpeedSource& source, const std::string& path, double otherwise);
bool flag_of(const DeepSpeedSource& source, const std::string& path, bool otherwise);

}  // namespace gannet::convert
