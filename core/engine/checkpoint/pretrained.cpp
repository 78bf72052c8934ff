// from_pretrained: maps tensors in files to parameters, and copies their elements.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/DefaultDtype.h>
#include <gannet/distributed.h>
#include <gannet/error.h>
#include <gannet/fill_auto.h>
#include <gannet/log.h>
#include <gannet/pretrained.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>

#include "base/format.h"
#include "base/glob.h"
#include "base/text.h"
#include "control/environment.h"
#include "files/io.h"
#include "files/known_folder.h"
#include "files/names.h"
#include "files/weight_files.h"
#include "params/interception.h"
#include "tensor/splits.h"
#include "tensor/vector_math.h"

namespace gannet {
namespace {

using files::WeightTensor;

// The number of elements that are converted at a time if the file has a different dtype.
constexpr int64_t kAtOnce = 1 << 17;

at::ScalarType dtype_named(const std::string& name, const ModelConfig& json) {
  std::string wanted = name;
  if (name == "auto") wanted = json.text("dtype", json.text("torch_dtype", "float32"));
  if (wanted.starts_with("torch.")) wanted = wanted.substr(6);
  const std::map<std::string, at::ScalarType> known = {
      {"float32", at::kFloat}, {"bfloat16", at::kBFloat16}, {"float16", at::kHalf}, {"float64", at::kDouble}};
  if (const auto found = known.find(wanted); found != known.end()) return found->second;
  throw Error(ErrorCode::kArgument, formatted("a model's dtype cannot be '{}'", printable(wanted)),
              "choose float32, bfloat16, float16, float64, or auto, which takes config.json's");
}

struct RankPlace {
  uint32_t rank = 0, size = 1;
};

// Returns this rank and the number of ranks that load: those of the program's group, of the world
// or, before the world exists, of the launch environment; {0, 1} if that is invalid.
RankPlace place_of(const PretrainedOptions& options) {
  if (options.process_group) return {options.process_group->rank(), options.process_group->size()};
  if (is_distributed_initialized()) {
    const auto world = init_distributed();
    return {world->rank(), world->size()};
  }
  try {
    const auto found = control::discover(control::variables_of_this_process(), {});
    return {found.rank, found.world_size};
  } catch (const Error&) {  // initialize throws it again
    return {};
  }
}

std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kMost = 8;
  const std::vector<std::string> first(names.begin(), names.begin() + static_cast<ptrdiff_t>(std::min(names.size(), kMost)));
  return join(first, ", ") + (names.size() > kMost ? formatted(" and {} more", names.size() - kMost) : "");
}

// Copies elements [begin, begin + to.numel()) of the file's tensor into `to`, flat. `spare`: a
// staging buffer for elements of a different dtype.
void copy_elements(const WeightTensor& from, int64_t begin, const at::Tensor& to, const at::Tensor& spare) {
  const uint64_t size = c10::elementSize(from.dtype);
  if (to.scalar_type() == from.dtype && to.device().is_cpu()) {
    from.bytes->copy_out(static_cast<uint64_t>(begin) * size, static_cast<uint64_t>(to.numel()) * size,
                         static_cast<char*>(to.data_ptr()));
    return;
  }
  for (int64_t done = 0; done < to.numel(); done += kAtOnce) {
    const int64_t count = std::min(kAtOnce, to.numel() - done);
    from.bytes->copy_out(static_cast<uint64_t>(begin + done) * size, static_cast<uint64_t>(count) * size,
                         static_cast<char*>(spare.data_ptr()));
    to.narrow(0, done, count).copy_(spare.narrow(0, 0, count * static_cast<int64_t>(size)).view(from.dtype));
  }
}

class PretrainedLoading {
 public:
  PretrainedLoading(torch::nn::Module& module, const PretrainedNames& names, const files::WeightFiles& weights);

  // Compares names and shapes. Throws before anything is written if they do not match.
  void compare(const PretrainedOptions& options);
  void fill();
  PretrainedReceipt receipt;

 private:
  struct WantedTensor {
    std::string name;
    at::Tensor tensor;
    std::shared_ptr<const DeclaredSplit> split;
    const WeightTensor* from = nullptr;
    std::vector<int64_t> shape() const { return split ? split->shape : tensor.sizes().vec(); }
  };
  std::string name_of(const std::string& in_file) const;
  void add(const std::string& in_file, const WeightTensor& tensor);
  void check_tied(const WeightTensor& one, const WeightTensor& other) const;
  void fill(const WantedTensor& one, const at::Tensor& spare) const;
  // A tensor's storage, which identifies tied tensors even if its bytes are not on this rank.
  static const void* storage_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

  const PretrainedNames& names_;
  std::vector<WantedTensor> wanted_;
  std::set<std::string> known_;
  std::map<std::string, const WeightTensor*> found_;  // by the module's names
  std::vector<std::string> in_file_;
  std::string path_;  // the path that the program passed
  bool lacks_base_ = false;
};

PretrainedLoading::PretrainedLoading(torch::nn::Module& module, const PretrainedNames& names, const files::WeightFiles& weights)
    : names_(names) {
  receipt.taken_from = weights.taken_from;
  path_ = weights.path;
  for (const auto& entry : module.named_parameters())
    wanted_.push_back({entry.key(), entry.value().detach(), split_of(entry.value())});
  for (const auto& entry : module.named_buffers())
    if (entry.value().defined()) wanted_.push_back({entry.key(), entry.value().detach(), nullptr});
  for (const WantedTensor& one : wanted_) known_.insert(one.name);
  const std::string head = names.base + ".";
  lacks_base_ = !names.base.empty() && std::none_of(weights.tensors.begin(), weights.tensors.end(),
                                                    [&](const WeightTensor& tensor) { return tensor.name.starts_with(head); });
  std::map<std::string, const WeightTensor*> by_name;
  for (const WeightTensor& tensor : weights.tensors) {
    by_name.emplace(tensor.name, &tensor);
    in_file_.push_back(tensor.name);
  }
  for (const WeightTensor& tensor : weights.tensors) add(tensor.name, tensor);
  for (const auto& [name, listed] : weights.aliases) add(name, *by_name.at(listed));
}

std::string PretrainedLoading::name_of(const std::string& in_file) const {
  std::string name = in_file;
  for (const auto& [old, now] : names_.renamed)
    if (name.ends_with(old)) name.replace(name.size() - old.size(), old.size(), now);
  if (const std::string longer = names_.base + "." + name; lacks_base_ && !known_.contains(name) && known_.contains(longer))
    name = longer;
  for (const auto& [other, parameter] : names_.tied)
    if (name == other && !known_.contains(name)) return parameter;
  return name;
}

void PretrainedLoading::add(const std::string& in_file, const WeightTensor& tensor) {
  const std::string name = name_of(in_file);
  if (known_.contains(name)) {
    const auto [place, is_new] = found_.emplace(name, &tensor);
    if (!is_new && place->second != &tensor) check_tied(*place->second, tensor);
    return;
  }
  const bool is_ignored = std::any_of(names_.ignored.begin(), names_.ignored.end(),
                                      [&](const std::string& pattern) { return matches_glob(pattern, in_file); });
  if (!is_ignored) receipt.unexpected.push_back(in_file);
}

// Called if two names of one parameter have separate values in the file. Throws if these values
// differ.
void PretrainedLoading::check_tied(const WeightTensor& one, const WeightTensor& other) const {
  bool are_equal = one.shape == other.shape && one.dtype == other.dtype;
  const uint64_t bytes = static_cast<uint64_t>(one.numel) * c10::elementSize(one.dtype);
  std::vector<char> a(std::min<uint64_t>(bytes, kAtOnce)), b(a.size());
  for (uint64_t done = 0; are_equal && done < bytes; done += a.size()) {
    const uint64_t count = std::min<uint64_t>(a.size(), bytes - done);
    one.bytes->copy_out(done, count, a.data());
    other.bytes->copy_out(done, count, b.data());
    are_equal = std::equal(a.begin(), a.begin() + static_cast<ptrdiff_t>(count), b.begin());
  }
  if (!are_equal)
    throw Error(ErrorCode::kMismatch,
                formatted("{}: '{}' and '{}' have different values, and the model has one parameter for both", receipt.taken_from,
                          one.name, other.name),
                "build it with tie_word_embeddings false: from_pretrained's model_overwrite");
}

void PretrainedLoading::compare(const PretrainedOptions& options) {
  std::vector<files::Conversion> conversions;
  std::unordered_set<const void*> filled;
  for (const WantedTensor& one : wanted_)
    if (found_.contains(one.name)) filled.insert(storage_of(one.tensor));
  for (WantedTensor& one : wanted_) {
    const auto found = found_.find(one.name);
    if (found == found_.end()) {
      if (!filled.contains(storage_of(one.tensor))) receipt.missing.push_back(one.name);
    } else if (const auto shape = one.shape(); found->second->shape != shape) {
      receipt.mismatched.push_back(
          formatted("{}: {} there, {} here", one.name, shape_text(found->second->shape), shape_text(shape)));
    } else {
      one.from = found->second;
      conversions.push_back({one.name, one.from->dtype, one.tensor.scalar_type()});
      ++receipt.loaded;
    }
  }
  const auto refuse = [&](const std::string& what, const std::vector<std::string>& names, const std::string& next) {
    throw Error(ErrorCode::kMismatch,
                formatted("the weights of {} do not fit the model: {} {}", receipt.taken_from, what, some_of(names)), next);
  };
  files::refuse_other_kinds(receipt.taken_from, conversions);
  if (!receipt.mismatched.empty() && !options.ignore_mismatched_sizes)
    refuse("other shapes of", receipt.mismatched,
           "use the config.json that was saved with them, or pass ignore_mismatched_sizes to initialise these at random");
  const std::vector<std::string> in_model(known_.begin(), known_.end());
  const std::string rename = files::rename_advice(path_, in_file_, in_model);
  if (receipt.loaded == 0 && !wanted_.empty())
    refuse(formatted("none of their names is the model's; the files have {}; the model has", files::some_names(in_file_)),
           in_model,
           rename.empty() ? "load them into the model that they are of"
                          : rename + "; `gannet checkpoint export OUT FOLDER` writes them, and config.json must be beside them");
  if (!options.allow_missing && !options.strict) {
    // A head that the files lack is a new one, to be trained, so only names under the base count.
    const auto counts = [&](const std::string& name) { return names_.base.empty() || name.starts_with(names_.base + "."); };
    const auto of_base = std::count_if(wanted_.begin(), wanted_.end(), [&](const WantedTensor& one) { return counts(one.name); });
    const auto missing = std::count_if(receipt.missing.begin(), receipt.missing.end(), counts);
    if (missing * 10 > of_base || (names_.needs_all && missing > 0))
      refuse(formatted("{} of {} names are not in the files, which have {}; missing", missing, of_base,
                       receipt.unexpected.empty() ? "no others" : files::some_names(receipt.unexpected) + " instead"),
             receipt.missing,
             rename.empty() ? "load the model that they are of; allow_missing = true leaves these at random" : rename);
  }
  constexpr const char* kNotStrict = "pass strict = false where this is meant";
  if (options.strict && !receipt.missing.empty()) refuse("missing", receipt.missing, kNotStrict);
  if (options.strict && !receipt.unexpected.empty()) refuse("unexpected", receipt.unexpected, kNotStrict);
}

void PretrainedLoading::fill(const WantedTensor& one, const at::Tensor& spare) const {
  if (one.from->numel == 0) return;
  if (one.split) {
    const at::Tensor whole = at::empty(one.from->shape, one.from->dtype);
    copy_elements(*one.from, 0, whole.view({-1}), spare);
    copy_from_whole(*one.split, whole, one.tensor);
    return;
  }
  // If the parameter is already sharded, each rank reads its own part.
  const auto read = [&](int64_t begin, const at::Tensor& to) { copy_elements(*one.from, begin, to, spare); };
  if (zero::write_at_source(one.tensor.storage().unsafeGetStorageImpl(), read)) return;
  if (one.tensor.is_contiguous()) return copy_elements(*one.from, 0, one.tensor.view({-1}), spare);
  const at::Tensor whole = at::empty(one.from->shape, one.from->dtype);
  copy_elements(*one.from, 0, whole.view({-1}), spare);
  one.tensor.copy_(whole);
}

void PretrainedLoading::fill() {
  const at::NoGradGuard no_grad;
  const at::Tensor spare = at::empty({kAtOnce * static_cast<int64_t>(sizeof(double))}, at::kByte);
  std::unordered_set<const void*> filled;
  for (const WantedTensor& one : wanted_)
    if (one.from && filled.insert(storage_of(one.tensor)).second) fill(one, spare);
}

void log_receipt(const PretrainedReceipt& receipt, const PretrainedOptions& options) {
  if (place_of(options).rank != 0) return;
  log_info(formatted("weights of {}: {} tensors", receipt.taken_from, receipt.loaded));
  const auto list = [](const char* what, const std::vector<std::string>& names) {
    if (!names.empty()) log_warning(formatted("{}: {}", what, some_of(names)));
  };
  list("not in the weights, so that the model's initial values stay", receipt.missing);
  list("in the weights, and not in the model", receipt.unexpected);
  list("of another shape in the weights, so that the model's initial values stay", receipt.mismatched);
}

}  // namespace

std::string PretrainedReceipt::to_string() const {
  std::string text = formatted("{}: {} tensors loaded", taken_from, loaded);
  const auto list = [&](const char* what, const std::vector<std::string>& names) {
    if (!names.empty()) text += formatted("\n  {}: {}", what, join(names, ", "));
  };
  list("missing", missing);
  list("unexpected", unexpected);
  list("mismatched", mismatched);
  return text;
}

namespace detail {

void refuse_quantized(const ModelConfig& json) {
  const char* key = "quantization_config";
  const Value* found = json.find(key);
  if (!found) found = json.find(key = "compression_config");
  if (!found) return;
  const Value* method = found->is_dict() ? found->as_dict().find("quant_method") : nullptr;
  throw Error(
      ErrorCode::kUnsupported,
      formatted("{} has {}{}: the files hold codes, and weights only together with their scales", json.where(), key,
                method && method->is_string() ? formatted(" ({})", printable(method->as_string())) : ""),
      "fetch the model that was not quantised, or dequantise it in transformers and save_pretrained(); where the files do "
      "hold floating-point weights, remove the key");
}

void refuse_other_folder(const std::string& folder) {
  if (!files::kind_of(formatted("{}/config.json", folder)).exists) files::refuse_known_folder(folder);
}

struct Building::State {
  caffe2::TypeMeta former = c10::get_default_dtype();
  std::optional<zero::Init> init;
};

Building::Building(const ModelConfig& json, const PretrainedOptions& options) : state_(std::make_unique<State>()) {
  const at::ScalarType dtype = dtype_named(options.dtype, json);
  const RankPlace place = place_of(options);
  if (options.config.empty() && place.size > 1 && place.rank == 0)
    log_info(
        "the model is built whole on every rank: from_pretrained and from_config were given no config, whose ZeRO stage 3 "
        "would share it out as it is built");
  if (!options.config.empty()) {
    // ZeRO's sizes are needed while the model is built. Other "auto"s are left to the code that
    // fills the engine's config.
    Config config = options.config;
    if (!options.overwrite.empty()) config.overwrite(options.overwrite);
    if (const auto hidden_size = hidden_size_of(json.values())) fill_auto_sizes(config, *hidden_size);
    if (config.is_zero3())
      state_->init.emplace(zero::Init::Options{std::move(config), {}, options.process_group, options.mesh, options.mpu});
  }
  c10::set_default_dtype(c10::scalarTypeToTypeMeta(dtype));
}

Building::~Building() { c10::set_default_dtype(state_->former); }

struct Weights::Files {
  files::WeightFiles weights;
};

Weights::Weights(const std::string& folder) : files_(std::make_unique<Files>(Files{files::open_weight_files(folder)})) {}
Weights::~Weights() = default;

PretrainedReceipt Weights::load_into(torch::nn::Module& module, const PretrainedNames& names,
                                     const PretrainedOptions& options) const {
  settle_vector_math();
  PretrainedLoading loading(module, names, files_->weights);
  loading.compare(options);
  loading.fill();
  log_receipt(loading.receipt, options);
  if (place_of(options).rank == 0 && files::kind_of(formatted("{}/adapter_config.json", files_->weights.path)).exists)
    log_warning(
        formatted("{} has an adapter (adapter_config.json) beside the model: the adapter is not applied; merge it first "
                  "(in Python, model.merge_and_unload().save_pretrained(FOLDER))",
                  files_->weights.path));
  return std::move(loading.receipt);
}

void tell_generation_config(const std::string& folder, const PretrainedOptions& options) {
  const std::string path = formatted("{}/generation_config.json", folder);
  if (place_of(options).rank != 0 || !files::kind_of(path).exists) return;
  std::vector<std::string> keys;
  const ModelConfig json = ModelConfig::read(path);
  for (const auto& [key, value] : json.values().entries())
    if (!value.is_null() && !key.starts_with("_") && key != "transformers_version") keys.push_back(key);
  if (!keys.empty())
    log_info(
        formatted("{} says {}: generate() takes the options that the program gives it; GenerateOptions::from_pretrained reads "
                  "them from that file",
                  path, some_of(keys)));
}

}  // namespace detail
}  // namespace gannet
