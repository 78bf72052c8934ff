/// Loads a model from a Hugging Face folder: config.json, and the weights in safetensors or .bin
/// files, one file or several with an index.
///
///   auto model = gannet::from_pretrained<gannet::models::Gpt2>("gpt2-folder", {.config = "ds_config.json"});
///   auto [engine, optimizer, loader, scheduler] = gannet::initialize(model, {.config = "ds_config.json"});
///
///   gannet::PretrainedReceipt receipt;
///   auto other = gannet::from_pretrained<Net>("folder", {.dtype = "bfloat16"}, &receipt);
///   for (const std::string& name : receipt.missing) ...
///
/// With the run's config, at ZeRO stage 3, the model is built under zero::Init, and each rank reads
/// the elements of its own shards from the files: a rank never holds more than its shards and the
/// tensor that is being built.
///
/// Any module works if it has a struct `Config` with `static Config from(const
/// gannet::ModelConfig&)` and a constructor that takes a Config. If the names in its files differ
/// from those of its parameters, a function `PretrainedNames pretrained_names() const` describes
/// them. gannet/models/ has some models. A Config that also needs other files of the folder has
/// `static Config from(const gannet::ModelConfig&, const std::string& folder)`, as that of
/// gannet::ExportedModule.
#pragma once

#include <gannet/config.h>
#include <gannet/mesh.h>
#include <gannet/model_config.h>
#include <gannet/module_of.h>
#include <gannet/mpu.h>
#include <gannet/zero.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gannet {

struct PretrainedOptions {
  Config config = {};         ///< the run's config: its ZeRO stage decides how the model is built; no config: unsharded
  Dict overwrite = {};        ///< merged over `config`, as in initialize
  Dict model_overwrite = {};  ///< replaces values of config.json: {{"resid_pdrop", 0.0}}. A name unknown to the model is an error
  /// Dtype of the model's parameters: "float32", "bfloat16", "float16", "float64", or "auto" for
  /// the one that config.json names. With the sections fp16 or bf16 the engine makes 16-bit copies
  /// itself, and fp32 keeps all bits of the file for the masters.
  std::string dtype = "float32";
  bool strict = false;                   ///< missing and unexpected names are also errors
  bool ignore_mismatched_sizes = false;  ///< keeps initial values where the file's shape differs
  std::shared_ptr<ProcessGroup> process_group = {};
  std::optional<MeshShape> mesh = {};   ///< as in initialize
  std::shared_ptr<const Mpu> mpu = {};  ///< as in initialize
  /// It is an error if more than a tenth of the model's names are missing in the files (among the
  /// names under PretrainedNames::base, if the model has that), since that many random weights are
  /// usually a mistake. With this option those parameters stay as they were initialised.
  bool allow_missing = false;
};

/// Result of a load. Names are the module's; those in `unexpected` are the file's.
struct PretrainedReceipt {
  std::string taken_from;               ///< the file, or the index if there are several files
  int64_t loaded = 0;                   ///< tensors that were filled
  std::vector<std::string> missing;     ///< names in no file: these parameters keep the model's initialisation
  std::vector<std::string> unexpected;  ///< names in a file but not in the module
  std::vector<std::string> mismatched;  ///< shape differs (ignore_mismatched_sizes): "name: [2, 3] there, [3, 3] here"
  std::string to_string() const;
};

/// Names in a model's files that differ from its parameters' names, and names to ignore.
struct PretrainedNames {
  std::string base = {};                  ///< prefix that is missing in files of the model without its head: "transformer"
  std::vector<std::string> ignored = {};  ///< patterns (`*`, `?`) of names to ignore: "*.attn.masked_bias"
  /// Pairs of a parameter's second name and its own name. Files may have either, or both with equal
  /// values.
  std::vector<std::pair<std::string, std::string>> tied = {};
  std::vector<std::pair<std::string, std::string>> renamed = {};  ///< pairs of older and current suffix: {".gamma", ".weight"}
  /// The model has no initial values of its own: every name must be in the files, unless
  /// PretrainedOptions::allow_missing says otherwise.
  bool needs_all = false;
};

namespace detail {

// While an object of this class exists, parameters are created in the chosen dtype and, at ZeRO
// stage 3, sharded.
class Building {
 public:
  Building(const ModelConfig& json, const PretrainedOptions& options);
  ~Building();
  Building(const Building&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Throws Error(kUnsupported) if config.json declares that the files hold quantised weights.
void refuse_quantized(const ModelConfig& json);
// Throws an error that identifies a folder without config.json, such as a folder of adapters.
void refuse_other_folder(const std::string& folder);

// The weights files of a folder. They are opened and checked before the model is built, so that a
// missing or truncated file is reported at once.
class Weights {
 public:
  explicit Weights(const std::string& folder);
  ~Weights();
  Weights(const Weights&) = delete;
  PretrainedReceipt load_into(torch::nn::Module& module, const PretrainedNames& names, const PretrainedOptions& options) const;

 private:
  struct Files;
  std::unique_ptr<Files> files_;
};

// Logs one line if the folder has a generation_config.json, since generate() uses only the options
// that the program passes.
void tell_generation_config(const std::string& folder, const PretrainedOptions& options);

}  // namespace detail

/// Builds a model with the sizes in config.json and random initial values. `json` may be read from
/// a file or made in code.
template <class Model>
auto from_config(ModelConfig json, const PretrainedOptions& options = {}) {
  using Module = typename detail::ModuleOf<Model>::type;
  json.overwrite(options.model_overwrite);
  const auto config = Module::Config::from(json);
  json.require_known(options.model_overwrite);
  const detail::Building building(json, options);
  return std::make_shared<Module>(config);
}
template <class Model>
auto from_config(const std::string& folder, const PretrainedOptions& options = {}) {
  return from_config<Model>(ModelConfig::read(folder), options);
}

/// Loads the model of the folder, and returns a std::shared_ptr to the module. Names that are
/// missing, unexpected or of a different shape are listed in `receipt`, and logged. Throws
/// Error(kNotFound) if config.json or one of the weights files is missing, Error(kUnsupported) if
/// model_type is not that of the module or the weights are quantised, Error(kMismatch) if a shape
/// differs or more than a tenth of the model's names are missing, Error(kCorrupt) for damaged files.
template <class Model>
auto from_pretrained(const std::string& folder, const PretrainedOptions& options = {}, PretrainedReceipt* receipt = nullptr) {
  using Module = typename detail::ModuleOf<Model>::type;
  detail::refuse_other_folder(folder);
  ModelConfig json = ModelConfig::read(folder);
  json.overwrite(options.model_overwrite);
  const auto config = [&] {
    if constexpr (requires { Module::Config::from(json, folder); })
      return Module::Config::from(json, folder);
    else
      return Module::Config::from(json);
  }();
  json.require_known(options.model_overwrite);
  detail::refuse_quantized(json);
  const detail::Weights weights(folder);
  const detail::Building building(json, options);
  auto model = std::make_shared<Module>(config);
  PretrainedNames names;
  if constexpr (requires { model->pretrained_names(); }) names = model->pretrained_names();
  PretrainedReceipt found = weights.load_into(*model, names, options);
  if (receipt) *receipt = std::move(found);
  if constexpr (requires { typename Module::Cache; }) detail::tell_generation_config(folder, options);
  return model;
}

}  // namespace gannet
