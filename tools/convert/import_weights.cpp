#include "convert/import_weights.h"

#include <ATen/ops/empty.h>
#include <gannet/model_config.h>

#include <set>

#include "base/format.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "convert/save_import.h"
#include "files/io.h"
#include "files/known_folder.h"
#include "files/weight_files.h"

namespace gannet::convert {
namespace {

// Returns a line for the receipt if the config next to the weights names a quantization, else "".
// The tensors are then codes and scales, and their names are not a model's.
std::string quantization_beside(const std::string& from) {
  const std::string folder =
      files::kind_of(from).is_folder ? from : from.substr(0, from.rfind('/') == from.npos ? 0 : from.rfind('/') + 1);
  const std::string file = folder.empty() || folder.ends_with('/') ? folder + "config.json" : folder + "/config.json";
  if (!files::kind_of(file).exists) return "";
  const ModelConfig config = ModelConfig::read(file);
  for (const char* key : {"quantization_config", "compression_config"})
    if (config.find(key))
      return formatted("the {} of {}: the tensors are codes and scales, as the files have them, and not a model's weights", key,
                       file);
  return "";
}

}  // namespace

WeightsReceipt import_weights(const std::string& from, const std::string& out, const WeightsImport& options) {
  check_import_folder(out, options.tag, "name a folder that has none, or another --tag");
  const files::WeightFiles weights = files::open_weight_files(from);
  Renaming rename(options.renames);
  std::set<std::string> names;
  checkpoint::Content content;
  content.tag = options.tag;
  for (const files::WeightTensor& tensor : weights.tensors) {
    const std::string renamed = rename(tensor.name);
    if (!names.insert(renamed).second)
      throw Error(ErrorCode::kArgument, formatted("{}: two tensors are named {}, one of them by --rename", from, renamed),
                  "choose other names");
    content.slices.push_back({formatted("parameter/{}", renamed), tensor.shape, 0,
                              at::empty({tensor.numel}, at::TensorOptions().dtype(tensor.dtype).device(at::kMeta)),
                              tensor.bytes});
  }
  rename.check(from);
  content.document = Dict{{"contents", "weights"}, {"imported_from", weights.taken_from}};
  content.rank_document = Dict{{"states", Dict()}};
  const checkpoint::SaveResult saved = save_import(out, content);
  WeightsReceipt receipt{weights.taken_from, saved.path, weights.tensors.size(), saved.bytes, {}};
  for (const auto& [alias, name] : weights.aliases)
    receipt.not_taken.push_back(formatted("{}: another name of {}, which is kept once", alias, name));
  if (const std::string beside = files::training_state_in(from); !beside.empty())
    receipt.not_taken.push_back(formatted("{}: the training state of another program", beside));
  if (const std::string quantized = quantization_beside(from); !quantized.empty()) receipt.not_taken.push_back(quantized);
  if (weights.not_tensors > 0)
    receipt.not_taken.push_back(std::to_string(weights.not_tensors) +
                                (weights.not_tensors == 1 ? " entry that is not a tensor" : " entries that are not tensors"));
  return receipt;
}

std::string WeightsReceipt::to_string() const {
  std::string text = formatted("imported {} as {}, {}\n  taken: {}{}", taken_from, path, size_text(bytes), tensors,
                               tensors == 1 ? " tensor\n" : " tensors\n");
  for (const auto& line : not_taken) text += formatted("  not taken: {}\n", line);
  return text;
}

}  // namespace gannet::convert
