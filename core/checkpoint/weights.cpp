// load_weights and save_weights for a plain module, without an engine.
#include <ATen/core/grad_mode.h>
#include <gannet/checkpoint.h>
#include <gannet/error.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>

#include "base/format.h"
#include "base/text.h"
#include "checkpoint/weight_source.h"
#include "files/names.h"
#include "files/weight_files.h"
#include "tensor/splits.h"
#include "tensor/vector_math.h"

namespace gannet {
namespace {

// Identity of the storage that tied tensors share, even if its bytes are absent.
const void* storage_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

// Parameters and buffers by name; tied ones appear under each name.
NamedTensors tensors_of(const torch::nn::Module& module) {
  NamedTensors tensors;
  for (const auto& entry : module.named_parameters()) tensors.emplace_back(entry.key(), entry.value().detach());
  for (const auto& entry : module.named_buffers())
    if (entry.value().defined()) tensors.emplace_back(entry.key(), entry.value().detach());
  return tensors;
}

// Small tensors are read together, because a block of a checkpoint holds many.
constexpr size_t kReadTogether = 8 << 20;

using SplitsByName = std::map<std::string, std::shared_ptr<const DeclaredSplit>>;
using SourceTensors = std::map<std::string, checkpoint::WeightSource::Info>;

// Names missing from a file, unexpected in it, or present with a different shape.
struct Differences {
  std::vector<std::string> missing, unexpected, shapes;
  bool are_none() const { return missing.empty() && unexpected.empty() && shapes.empty(); }
};

Differences differences_of(const NamedTensors& wanted, const SourceTensors& source, const SplitsByName& splits, bool strict) {
  // A tied tensor may have been saved under only one of its names.
  std::unordered_set<const void*> filled;
  for (const auto& [name, tensor] : wanted)
    if (source.count(name)) filled.insert(storage_of(tensor));
  Differences found;
  std::set<std::string> known;
  for (const auto& [name, tensor] : wanted) {
    known.insert(name);
    const auto there = source.find(name);
    if (there == source.end()) {
      if (strict && !filled.count(storage_of(tensor))) found.missing.push_back(name);
      continue;
    }
    const auto split = splits.find(name);
    const std::vector<int64_t> shape = split == splits.end() ? tensor.sizes().vec() : split->second->shape;
    if (there->second.shape != shape)
      found.shapes.push_back(
          formatted("shape of {}: {} there, {} in the module", name, shape_text(there->second.shape), shape_text(shape)));
  }
  for (const auto& [name, info] : source)
    if (strict && !known.count(name)) found.unexpected.push_back(name);
  return found;
}

// Lists some of each kind: comparing missing and unexpected names reveals a wrong prefix.
[[noreturn]] void refuse_differences(const std::string& path, const Differences& found, const NamedTensors& wanted,
                                     const SourceTensors& source) {
  std::string text, advice;
  if (!found.missing.empty()) text += formatted("\n  missing in it: {}", files::some_names(found.missing, 5));
  if (!found.unexpected.empty()) text += formatted("\n  unexpected in it: {}", files::some_names(found.unexpected, 5));
  for (size_t i = 0; i < std::min<size_t>(found.shapes.size(), 5); ++i) text += formatted("\n  {}", found.shapes[i]);
  if (found.shapes.size() > 5) text += formatted("\n  and {} more of another shape", found.shapes.size() - 5);
  if (!found.missing.empty() && !found.unexpected.empty()) {
    std::vector<std::string> in_file;
    for (const auto& [name, info] : source) in_file.push_back(name);
    std::set<std::string> known;
    for (const auto& [name, tensor] : wanted) known.insert(name);
    advice = files::rename_advice(path, in_file, {known.begin(), known.end()});
  }
  throw Error(ErrorCode::kMismatch, formatted("the weights of '{}' do not fit the module:{}", path, text),
              advice.empty() ? "build the module that was saved, or pass strict = false where only names are missing" : advice);
}

}  // namespace

int64_t load_weights(torch::nn::Module& module, const std::string& path, const WeightsOptions& options) {
  settle_vector_math();
  const auto opened = checkpoint::open_weights(path, options.tag);
  const auto& source = opened->tensors();
  const NamedTensors wanted = tensors_of(module);
  SplitsByName splits;  // the file has full tensors
  for (const auto& entry : module.named_parameters())
    if (auto split = split_of(entry.value())) splits.emplace(entry.key(), std::move(split));
  if (const Differences found = differences_of(wanted, source, splits, options.strict); !found.are_none())
    refuse_differences(path, found, wanted, source);
  std::vector<files::Conversion> conversions;
  for (const auto& [name, tensor] : wanted)
    if (const auto there = source.find(name); there != source.end())
      conversions.push_back({name, there->second.dtype, tensor.scalar_type()});
  files::refuse_other_kinds(path, conversions);
  at::NoGradGuard no_grad;
  std::vector<std::string> names;
  NamedTensors to_fill;
  size_t bytes = 0;
  const auto fill = [&] {
    auto values = opened->read(names);
    for (size_t i = 0; i < names.size(); ++i) {
      if (const auto split = splits.find(names[i]); split != splits.end())
        copy_from_whole(*split->second, values[i], to_fill[i].second);
      else
        to_fill[i].second.copy_(values[i]);
      values[i].reset();
    }
    names.clear(), to_fill.clear(), bytes = 0;
  };
  int64_t count = 0;
  for (const auto& [name, tensor] : wanted) {
    const auto found = source.find(name);
    if (found == source.end()) continue;
    const size_t size = static_cast<size_t>(numel_of(found->second.shape)) * c10::elementSize(found->second.dtype);
    if (!names.empty() && bytes + size > kReadTogether) fill();
    names.push_back(name), to_fill.emplace_back(name, tensor), bytes += size;
    ++count;
  }
  fill();
  return count;
}

void save_weights(const torch::nn::Module& module, const std::string& path) {
  for (const auto& entry : module.named_parameters())
    if (split_of(entry.value()))
      throw Error(ErrorCode::kUnsupported,
                  formatted("save_weights writes one rank's module, and parameter '{}' is split among ranks", entry.key()),
                  "engine->save_fp32_model() or save_16bit_model() put the whole model together");
  save_safetensors(path, tensors_of(module), {{"format", "pt"}});
}

}  // namespace gannet
