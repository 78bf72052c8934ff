/// A model that was written in Python, trained from C++ without its source: python/gannet_export writes a folder with its
/// graph, its weights and its names (docs/python-models.md).
///
///   auto model = gannet::from_pretrained<gannet::ExportedModule>("model/", {.config = "ds_config.json"});
///   auto [engine, optimizer, loader, scheduler] = gannet::initialize(model, {.config = "ds_config.json"});
///   at::Tensor loss = engine->forward(gannet::NamedBatch{{"input_ids", ids}, {"labels", labels}});
///   engine->backward(loss);
///   engine->step();
///
/// Its parameters and buffers have the names of the Python model, so that weights return by load_state_dict. forward()
/// runs the graph of the module's mode and dtype operator by operator, as a model in C++ does: autograd, every ZeRO stage,
/// offload, autocast and the profiler work as for one.
#pragma once

#include <ATen/core/Tensor.h>
#include <gannet/layers.h>
#include <gannet/model_config.h>
#include <gannet/named_batch.h>
#include <gannet/pretrained.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gannet {

namespace exported {
class Layout;
class Program;
}  // namespace exported
namespace pipe {
struct MicroBatch;
}

/// A parameter or buffer of an exported model.
struct ExportedTensor {
  std::string name;
  std::vector<int64_t> shape;
  bool requires_grad = false;
  std::string dtype = "float32";
};

/// An input of a graph. `shape` is readable text: "[s0, s1, 3]", where s0 and s1 may vary.
struct ExportedInput {
  std::string name;
  std::string dtype;
  std::string shape;
};

struct ExportedGraph {
  std::string name;           ///< "train.fp32", "eval.bf16" ...
  std::string torch_version;  ///< the exporter's
  size_t nodes = 0;           ///< of the graph and of those inside of it
  std::vector<ExportedInput> inputs;
  std::vector<std::string> relations;  ///< between sizes, as text: "ids.size(0) == labels.size(0)"
};

/// Contents of a folder, apart from the weights. Created by from_pretrained, or without reading
/// weights:
///   const auto config = gannet::ExportedConfig::from(gannet::ModelConfig::read("model/"), "model/");
struct ExportedConfig {
  /// Reads config.json, the graphs and the constants. Throws Error(kNotFound) for a missing file,
  /// Error(kCorrupt) for a damaged one, with graph and node, and Error(kUnsupported) for another
  /// version of the format, or for an operator that this LibTorch does not have or that a graph may
  /// not call.
  static ExportedConfig from(const ModelConfig& json, const std::string& folder);
  std::vector<ExportedGraph> graphs() const;

  std::string folder;
  std::vector<ExportedTensor> parameters, buffers;        ///< in the order of the Python model
  std::vector<std::pair<std::string, std::string>> tied;  ///< another name, and the name under which the value is stored
  std::vector<std::shared_ptr<const exported::Program>> programs;
};

class ExportedModule : public torch::nn::Module {
 public:
  using Config = ExportedConfig;

  explicit ExportedModule(Config config);

  /// Returns the loss, a scalar. The batch has every input of the export under its name, on the device of the
  /// parameters, in its dtype; inputs of floating point have the parameters' dtype. Sizes may differ from the example's within
  /// the ranges and relations that the export found.
  ///
  /// Throws Error(kArgument) for a batch that does not fit, with the input and what it is, and for an operator that
  /// failed, with its name, its layer and its arguments; Error(kUnsupported) if the folder has no graph of the module's
  /// mode (train() or eval()) or dtype. Several threads may call it at once; in train mode they write the same buffers, as
  /// those of batch norm.
  at::Tensor forward(const NamedBatch& batch);

  /// The graph divided into parts that run one after another, named after modules of the Python
  /// model: "transformer.wte", "transformer.h.0" ... It is cut where the fewest parameter-dependent
  /// values cross. Steps that depend on no parameter are recomputed in each part that needs them,
  /// except random numbers. When the engine recomputes layers (docs/activation.md), forward() runs
  /// these parts and then the rest of the graph, after the last use of a parameter. The first layer
  /// takes micro_batch(batch).inputs. The layers refer to the module, which must outlive them.
  std::vector<Layer> layers() const;
  /// The layers for a pipe::Module; a pipeline needs nothing else (docs/pipeline.md). They are
  /// layers(), with those merged that use the same module with nested modules. Throws
  /// Error(kUnsupported) if only one layer is left.
  std::vector<Layer> pipeline_layers() const;
  /// Computes the loss from the last layer's output and micro_batch(batch).labels.
  at::Tensor pipeline_loss(const Wire& outputs_and_labels) const;
  /// Splits a batch into `inputs`, which the layers need, and `labels`, which the loss needs.
  /// Checks names, ranges, relations and dtypes as forward() does, and converts floating-point
  /// inputs to the dtype of the parameters.
  pipe::MicroBatch micro_batch(const NamedBatch& batch) const;

  PretrainedNames pretrained_names() const;
  const Config& config() const { return config_; }

 private:
  friend class exported::Layout;
  void register_tensors();
  at::Tensor run_whole(size_t chosen, const NamedBatch& batch) const;
  size_t chosen_program(at::ScalarType dtype) const;
  void require_buffers_of(at::ScalarType dtype) const;
  void require_gradient(size_t chosen, const at::Tensor& loss) const;
  const exported::Layout& layout() const;
  const exported::Layout& pipeline_layout() const;

  Config config_;
  std::map<std::string, at::Tensor> tensors_;   // parameters and buffers by name
  std::vector<std::vector<at::Tensor>> given_;  // for each program, by placeholder; undefined for constants and inputs
  std::map<std::string, std::shared_ptr<torch::nn::Module>> owners_;  // by tensor; null: the model itself
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const exported::Layout> layout_, pipeline_layout_;  // created on first use
  at::Tensor leading_;  // the first floating-point parameter, which gives the module's dtype and device
};

/// Result of comparing a folder with the probe, the results that the exporter recorded.
struct ExportedCheck {
  struct Row {
    std::string graph;  ///< "train.fp32"
    double loss_there = 0, loss_here = 0;
    size_t gradients = 0;  ///< number of gradient norms that were compared
    std::string worst;     ///< the name of the gradient whose norm differs most, relative to the exporter's
    double worst_there = 0, worst_here = 0;
    double worst_distance = 0;  ///< |here - there|, relative to the norm there or to a tenth of that of all gradients
    bool agrees = false;
    bool is_bit_equal = false;  ///< of the loss and every norm
  };
  std::vector<Row> rows;
  bool agrees() const;
};

/// Runs the batch of the export through every graph of the folder, forward and backward, on one CPU
/// thread, and compares the loss and each gradient's norm with the exporter's. They must agree
/// within 1e-5 for fp32 graphs and 2e-2 for bf16. Restores the program's random state and number of
/// threads. Throws the same errors as from_pretrained, and Error(kNotFound) if the folder has no
/// probe, for example because it was converted from a .pt2 archive.
ExportedCheck check_exported(const std::string& folder);

/// A cut between two layers of an exported model, and the values that cross it.
struct ExportedCut {
  struct Value {
    std::string name;   ///< of the node, or of the input of the batch
    std::string shape;  ///< in the sizes of the batch: "[s0, s1, 16]"
    std::string dtype;
    int64_t bytes = 0;      ///< of the export's example
    bool is_input = false;  ///< an input of the batch, which a later layer needs
  };
  std::string layer;  ///< the layer that begins here; "loss": the end of the last one
  std::string node;   ///< the first node of the layer that runs once
  std::vector<Value> values;
};

struct ExportedCuts {
  std::string graph;  ///< "train.fp32"
  std::string first_layer;
  std::vector<ExportedCut> cuts;  ///< in the order of the graph; the last one is before the loss
};

/// The cuts between the layers of ExportedModule::layers(), or between `segments` groups of layers
/// as "number_checkpoints" makes them. Runs the batch of the export at several sizes to find the
/// shapes. Throws Error(kNotFound) if the folder has no probe.
ExportedCuts exported_cuts(const std::string& folder, std::optional<size_t> segments = {});

}  // namespace gannet
