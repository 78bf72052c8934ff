/// A model in a TorchScript file, trained from C++: what torch.jit.save wrote of torch.jit.script(model) or torch.jit.trace
/// (docs/python-models.md).
///
///   auto model = std::make_shared<gannet::TorchScriptModule>("model.pt");
///   auto [engine, optimizer, loader, scheduler] = gannet::initialize(model, {.config = "ds_config.json"});
///   at::Tensor loss = engine->forward(gannet::NamedBatch{{"input_ids", ids}, {"labels", labels}});
///
/// Its parameters and buffers have the names of the Python model, so that weights return by load_state_dict. The file
/// has no graph of sizes, so that it cannot be divided: no layers(), no recomputation by the config and no pipelines. A new
/// model is better exported by python/gannet_export, since PyTorch is retiring TorchScript. The file is a program
/// that can call any operator: load only files that you trust.
#pragma once

#include <ATen/core/Tensor.h>
#include <gannet/named_batch.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace gannet {

class TorchScriptModule : public torch::nn::Module {
 public:
  /// An argument of the model's forward.
  struct Input {
    std::string name;
    bool is_needed = true;  ///< it has no default
  };

  /// Reads the file, every tensor to the CPU. Throws Error(kNotFound) if there is none, Error(kCorrupt) if it is not a
  /// TorchScript file, and Error(kUnsupported) for a frozen module, which has no parameters, for an operator that this program
  /// does not have, and for a forward with an argument that is not a tensor and has no default.
  explicit TorchScriptModule(const std::string& path);
  ~TorchScriptModule() override;

  /// Returns the loss: forward's result, its "loss" or its first element, a scalar. The batch has forward's arguments
  /// by name; inputs of floating point are converted to the dtype of the parameters. Throws Error(kArgument) for a name
  /// that is missing or unknown, and where forward fails, with the operator's message. One thread at a time may call it.
  at::Tensor forward(const NamedBatch& batch);
  /// Also sets the flag `training` of the modules in the file. A traced model keeps the mode in which it was traced.
  void train(bool on = true) override;

  const std::string& path() const { return path_; }
  const std::vector<Input>& inputs() const { return inputs_; }
  /// Another name, and the name under which the tensor is registered.
  const std::vector<std::pair<std::string, std::string>>& tied() const { return tied_; }
  /// Number of operators in the code of forward, and of the methods that it calls.
  size_t operators() const;

 private:
  struct Script;
  void register_tensors();
  void read_inputs();

  std::string path_;
  std::unique_ptr<Script> script_;
  std::vector<Input> inputs_;
  std::vector<std::pair<std::string, std::string>> tied_;
  at::Tensor leading_;  // the first parameter of floating point
};

}  // namespace gannet
