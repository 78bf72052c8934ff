// The weights of a stage's layers: as values by name, and as one file for each layer. Tensors keep
// their names in the whole model, and files are named by the layer's number in it, so that neither
// depends on the number of stages.
#pragma once

#include <gannet/pipe.h>
#include <gannet/safetensors.h>
#include <gannet/zero.h>

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "params/rank_context.h"
#include "pipeline/stage.h"

namespace gannet::pipeline {

class LayerFiles {
 public:
  /// `chunks`: this stage's layers. All arguments must outlive the object, which holds no tensors.
  LayerFiles(EngineBase& engine, RankContext& ranks, const pipe::ModuleImpl& module, const std::vector<Stage>& chunks);

  /// These implement PipelineEngine's calls (gannet/pipe.h).
  std::string path_of(const std::string& folder, size_t local_layer) const;
  void save(const std::string& folder);
  void load(const std::string& folder, bool strict);
  NamedTensors state_dict();
  void load_state_dict(const NamedTensors& state, bool strict);

 private:
  struct NamedTensor {
    std::string name;
    at::Tensor tensor;
    bool is_parameter;
  };
  struct LayerTensors {
    size_t number;  // in the whole model
    std::vector<NamedTensor> tensors;
  };
  using Values = std::map<std::string, at::Tensor>;

  std::vector<LayerTensors> layers() const;
  size_t rounds() const;
  zero::GatheredParameters whole_layer(const std::vector<LayerTensors>& own, size_t round);
  void refuse_experts(const char* call) const;
  std::vector<std::string> agreed(const char* call, const std::string& outcome);
  Values read(const LayerTensors& layer, size_t local_layer, const std::string& folder, bool strict, std::string& step) const;
  void set_values(const char* call, const std::vector<LayerTensors>& own, const std::vector<Values>& values,
                  const std::string& where, const std::string& step, const std::string& checked);

  EngineBase& engine_;
  RankContext& ranks_;
  const pipe::ModuleImpl& module_;
  const std::vector<Stage>& chunks_;
};

}  // namespace gannet::pipeline
