/// Checkpoints of an engine, and weights files without an engine.
///
///   engine->save_checkpoint("run1");                                  // every rank; tag "global_step<N>"
///   auto receipt = engine->load_checkpoint("run1", {.if_present = true});
///   std::cout << receipt.to_string() << '\n';                         // what was loaded, from where, and what was passed over
///
///   gannet::load_weights(*model, "run1");                             // a plain module, for inference
///
/// A checkpoint is written under a temporary name next to the others and renamed when it is
/// complete, so that a crash at any moment leaves the earlier ones intact; every byte of it is
/// checksummed. It can be loaded at any number of ranks. Resuming is exact, since a checkpoint
/// holds the weights, fp32 masters, optimizer states, loss scale, schedule, hyperparameters, random
/// states of every rank, the loader's position, counters, batch-norm statistics of every rank, and
/// the data that the program adds (ClientState, EngineBase::add_state).
#pragma once

#include <gannet/safetensors.h>
#include <gannet/value.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace gannet {

/// The program's own data in a checkpoint: rank 0's is saved, and every rank gets it back.
struct ClientState {
  Dict document;
  NamedTensors tensors;
};

struct SaveOptions {
  std::string tag = {};  ///< name of the checkpoint in its folder; default "global_step<N>"
  ClientState client_state = {};
  bool save_latest = true;  ///< whether the file `latest` names this checkpoint afterwards
  bool exclude_frozen_parameters = false;
  /// Adds the program's own files to the checkpoint. It is called before the folder gets its final
  /// name, so that the checkpoint is never visible without these files. Called on rank 0 (if each
  /// machine has its own file system, on the first rank of each). With an asynchronous save it is
  /// called in the background. An exception that it throws becomes the save's error.
  std::function<void(const std::string& folder)> add_files = {};
};

struct LoadOptions {
  std::string tag = {};            ///< name of the checkpoint; default: the newest complete one
  bool load_module_strict = true;  ///< false: parameters and buffers may be missing on either side; the receipt lists them
  bool load_optimizer_states = true;
  bool load_lr_scheduler_states = true;
  bool load_module_only = false;  ///< weights and buffers only; counters start at 0
  bool if_present = false;        ///< no checkpoint: starts fresh and reports it; false: error
  /// A run that resumes owns the folder from the load on: it is an error if another running job
  /// resumes from it or saves into it. false: this engine only reads, and another job may save
  /// there. load_module_only never locks.
  bool lock_folder = true;
  /// Loads the weights into the module instead of the engine's own code. It gets every parameter
  /// (fp32, or fp64) and buffer by name.
  std::function<void(const std::map<std::string, at::Tensor>& source, torch::nn::Module& destination)> custom_load_fn = {};
};

/// Result of a load.
struct LoadReceipt {
  bool loaded = false;       ///< false: there was no checkpoint (with if_present)
  bool module_only = false;  ///< only weights and buffers: load_module_only, or the checkpoint has nothing else
  std::string path, tag;
  int64_t parameters = 0, buffers = 0, states = 0;  ///< tensors of each kind that were loaded
  int64_t global_steps = 0, global_samples = 0;
  std::vector<double> lr;  ///< the learning rate of each group, for the next step
  int64_t saved_by_ranks = 0;
  std::vector<std::string> notes;  ///< broken checkpoints that were passed over, values that differ from the config's, ...
  ClientState client_state;
  std::string to_string() const;
  explicit operator bool() const { return loaded; }
};

/// Result of a save.
struct SaveReceipt {
  std::string path;
  uint64_t bytes = 0;  ///< size of all ranks' files; 0 while the background write is in progress
  double seconds = 0;  ///< duration of the call
  /// A warning that is also logged: "2 parameters are not finite: 'h.0.weight' (12 elements) ...".
  /// It is empty if all are finite, or while the background write is in progress. The checkpoint is
  /// still complete, and holds the values as they are.
  std::string warning = {};
};

struct WeightsOptions {
  std::string tag = {};  ///< name of the checkpoint in a checkpoint folder; default: the newest complete one
  bool strict = true;    ///< false: names may be missing on either side
};

/// Fills a module's parameters and buffers by name, converting to their dtype and device. `path` is
/// a checkpoint folder of save_checkpoint, a safetensors file, a state dict of torch.save (.pt,
/// .pth, .bin), or a folder of either in Hugging Face's layout. A state dict is the file's root or
/// is under "module", "model" ...; the log shows which. Code in PyTorch files never runs. Returns
/// the number of tensors that were filled. Throws Error(kMismatch) with the first differences
/// (missing, unexpected, shape), Error(kNotFound), Error(kCorrupt).
int64_t load_weights(torch::nn::Module& module, const std::string& path, const WeightsOptions& options = {});
/// Writes parameters and buffers as one safetensors file. Throws Error(kUnsupported) if a parameter is split among ranks.
void save_weights(const torch::nn::Module& module, const std::string& path);

}  // namespace gannet
