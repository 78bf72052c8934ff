#include "exchange/import_weights.h"

#include <ATen/ops/empty.h>

#include <filesystem>
#include <set>

#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "exchange/pieces.h"
#include "exchange/state_dict.h"

namespace gannet::exchange {

WeightsReceipt import_weights(const std::string& from, const std::string& out, const WeightsImport& options) {
  if (std::filesystem::exists(std::filesystem::path(out) / options.tag))
    throw Error(ErrorCode::kArgument, out + " has a '" + options.tag + "' already",
                "name a folder that has none, or another --tag");
  const StateDict weights = open_state_dict(from);
  Renaming rename(options.renames);
  std::set<std::string> names;
  checkpoint::Content content;
  content.tag = options.tag;
  for (const auto& [name, tensor] : weights.tensors) {
    const std::string renamed = rename(name);
    if (!names.insert(renamed).second)
      throw Error(ErrorCode::kArgument, from + ": two tensors are named " + renamed + ", one of them by --rename",
                  "choose other names");
    const int64_t numel = tensor.stored.numel();
    const auto bytes = stored({{numel, tensor.file, tensor.stored, 0}}, tensor.stored.dtype);
    content.slices.push_back({"parameter/" + renamed, tensor.stored.sizes, 0,
                              at::empty({numel}, at::TensorOptions().dtype(tensor.stored.dtype).device(at::kMeta)), bytes});
  }
  rename.check(from);
  content.document = Dict{{"imported_from", weights.taken_from}};
  const checkpoint::SaveResult saved = checkpoint::Saver(out, {}).save(content, {});
  return {weights.taken_from, saved.path, weights.tensors.size(), weights.not_tensors, saved.bytes};
}

std::string WeightsReceipt::to_string() const {
  std::string text = "imported " + taken_from + " as " + path + ", " + size_text(bytes) +
                     "\n  taken: " + std::to_string(tensors) + (tensors == 1 ? " tensor\n" : " tensors\n");
  if (not_tensors > 0)
    text += "  not taken: " + std::to_string(not_tensors) +
            (not_tensors == 1 ? " entry that is no tensor\n" : " entries that are no tensors\n");
  return text;
}

}  // namespace gannet::exchange
