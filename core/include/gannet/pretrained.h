/// A model from a folder as Hugging Face lays it out: config.json, and the weights in safetensors or .bin files, one or several
/// with an index.
///
///   auto model = gannet::from_pretrained<gannet::models::Gpt2>("gpt2-folder", {.config = "ds_config.json"});
///   auto [engine, optimizer, loader, scheduler] = gannet::initialize(model, {.config = "ds_config.json"});
///
///   gannet::PretrainedReceipt receipt;
///   auto other = gannet::from_pretrained<Net>("folder", {.dtype = "bfloat16"}, &receipt);
///   for (const std::string& name : receipt.missing) ...
///
/// With the run's config, at ZeRO stage 3, the model is built under zero::Init, and each rank reads the elements of its own
/// shards from the files: a rank never holds more than its shards and the tensor that is being built.
///
/// Any module will do that has a struct `Config` with `static Config from(const gannet::ModelConfig&)` and is constructed from
/// it. A function `PretrainedNames pretrained_names() const` says what else its files may hold. gannet/models/ has some models.
#pragma once

#include <gannet/config.h>
#include <gannet/mesh.h>
#include <gannet/model_config.h>
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
  Config config = {};         ///< the run's: its ZeRO stage decides how the model is built. Without one it is built whole
  Dict overwrite = {};        ///< merged over `config`, as initialize's
  Dict model_overwrite = {};  ///< over config.json: {{"resid_pdrop", 0.0}}. A name that the model does not know is an error
  /// Of the model's parameters: "float32", "bfloat16", "float16", "float64", or "auto", what config.json names. With the sections
  /// fp16 or bf16 the engine makes 16-bit copies itself, and fp32 keeps all bits of the file for the masters.
  std::string dtype = "float32";
  bool strict = false;                   ///< missing and unexpected names are errors, too
  bool ignore_mismatched_sizes = false;  ///< a tensor of another shape stays as it was initialised, instead of being an error
  std::shared_ptr<ProcessGroup> process_group = {};
  std::optional<MeshShape> mesh = {};   ///< as initialize's
  std::shared_ptr<const Mpu> mpu = {};  ///< likewise
  /// More than a tenth of the model's names missing in the files (of the part under PretrainedNames::base, where it has one) is
  /// an error, since that many random weights are mostly a mistake; with this they stay as they were initialised.
  bool allow_missing = false;
};

/// What a load did. Names are the module's, `unexpected` the file's.
struct PretrainedReceipt {
  std::string taken_from;               ///< the file, or the index of several
  int64_t loaded = 0;                   ///< tensors that were filled
  std::vector<std::string> missing;     ///< in no file: initialised as the model does it
  std::vector<std::string> unexpected;  ///< in a file, and not in the module
  std::vector<std::string>
      mismatched;  ///< of another shape there, with ignore_mismatched_sizes: "name: [2, 3] there, [3, 3] here"
  std::string to_string() const;
};

/// What a model's files hold beside its parameters, and under which other names.
struct PretrainedNames {
  std::string base = {};                  ///< files of the model without its head lack it: "transformer"
  std::vector<std::string> ignored = {};  ///< patterns (`*`, `?`) of names to pass over: "*.attn.masked_bias"
  /// Another name of a parameter, and the parameter: files may have either, or both with equal values.
  std::vector<std::pair<std::string, std::string>> tied = {};
  std::vector<std::pair<std::string, std::string>> renamed = {};  ///< ends of older names: {".gamma", ".weight"}
};

namespace detail {

// While it lives, parameters are made in the dtype, and at stage 3 shared out.
class Building {
 public:
  Building(const ModelConfig& json, const PretrainedOptions& options);
  ~Building();
  Building(const Building&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Throws Error(kUnsupported) where config.json says that the files hold codes of quantised weights.
void refuse_quantized(const ModelConfig& json);
// Names folders of adapters and others that hold no config.json for what they are.
void refuse_other_folder(const std::string& folder);

// The files of a folder, opened and checked before the model is built: that one is missing or cut is said at once.
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

// One line of the log where the folder has a generation_config.json that says anything: generate() has the program's options.
void tell_generation_config(const std::string& folder, const PretrainedOptions& options);

// Of a holder that TORCH_MODULE made: what it holds.
template <class Model>
struct ModuleOf {
  using type = Model;
};
template <class Holder>
  requires requires { typename Holder::ContainedType; }
struct ModuleOf<Holder> {
  using type = typename Holder::ContainedType;
};

}  // namespace detail

/// A model of the sizes in config.json, initialised at random. `json` may be read or made in code.
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

/// The model of the folder, as a std::shared_ptr to the module. Names that are missing, unexpected or of another shape are listed
/// in `receipt`, and logged. Throws Error(kNotFound) without config.json or a shard, Error(kUnsupported) for another model_type,
/// Error(kMismatch) where a shape differs or more than a tenth of the model's names are missing, Error(kCorrupt) for damaged
/// files.
template <class Model>
auto from_pretrained(const std::string& folder, const PretrainedOptions& options = {}, PretrainedReceipt* receipt = nullptr) {
  using Module = typename detail::ModuleOf<Model>::type;
  detail::refuse_other_folder(folder);
  ModelConfig json = ModelConfig::read(folder);
  json.overwrite(options.model_overwrite);
  const auto config = Module::Config::from(json);
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
