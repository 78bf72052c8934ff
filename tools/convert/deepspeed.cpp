#include "convert/deepspeed.h"

#include <ATen/ops/empty.h>
#include <gannet/error.h>

#include <set>

#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "convert/deepspeed_document.h"
#include "convert/deepspeed_state.h"
#include "convert/renaming.h"
#include "convert/save_import.h"
#include "files/io.h"

namespace gannet::convert {
namespace {

checkpoint::Slice slice(std::string name, const ImportedTensor& tensor, const files::Pieces& pieces) {
  return {std::move(name), tensor.shape, 0,
          at::empty({files::numel_of(pieces)}, at::TensorOptions().dtype(tensor.dtype).device(at::kMeta)),
          files::stored(pieces, tensor.dtype)};
}

std::string count_text(size_t count, const char* one) { return std::to_string(count) + " " + one + (count == 1 ? "" : "s"); }

std::vector<checkpoint::Slice> slices_of(const DeepSpeedFolder& folder, const DeepSpeedState& state,
                                         const DeepSpeedOptions& options, DeepSpeedReceipt& receipt) {
  std::vector<checkpoint::Slice> slices;
  std::set<std::string> names, states;
  Renaming rename(options.renames);
  const auto renamed = [&](const ImportedTensor& tensor) {
    const std::string name = rename(tensor.name);
    if (!names.insert(name).second)
      throw Error(ErrorCode::kArgument, folder.path + ": two tensors are named " + name + ", one of them by --rename",
                  "choose other names");
    return name;
  };
  int64_t numel = 0;
  for (const auto& tensor : state.trained) {
    const std::string name = renamed(tensor);
    numel += files::numel_of(tensor.pieces);
    slices.push_back(slice("parameter/" + name, tensor, tensor.pieces));
    for (const auto& [key, pieces] : tensor.states) {
      slices.push_back(slice("state/" + key + "/" + name, tensor, pieces));
      states.insert(key);
    }
  }
  for (const auto& tensor : state.frozen) slices.push_back(slice("parameter/" + renamed(tensor), tensor, tensor.pieces));
  for (const auto& tensor : state.buffers) slices.push_back(slice("buffer/0/" + renamed(tensor), tensor, tensor.pieces));
  rename.check(folder.path);
  files::Amount amount;
  for (const auto* tensors : {&state.trained, &state.frozen, &state.buffers})
    for (const auto& tensor : *tensors) {
      amount.add(tensor.pieces);
      for (const auto& [key, pieces] : tensor.states) amount.add(pieces);
    }
  amount.check();

  receipt.taken.push_back(
      count_text(state.trained.size(), "trained parameter") + ", " + std::to_string(numel) + " elements" +
      (state.trained.empty() ? "" : std::string(" as ") + (state.trained[0].dtype == c10::kDouble ? "fp64" : "fp32")) +
      (state.frozen.empty() ? "" : ", " + std::to_string(state.frozen.size()) + " frozen") +
      (state.buffers.empty() ? "" : ", " + count_text(state.buffers.size(), "buffer")));
  if (!states.empty()) receipt.taken.push_back("optimizer states " + join({states.begin(), states.end()}, ", "));
  if (options.weights_only) receipt.not_taken.push_back("optimizer states: --weights-only");
  for (const auto& [alias, name] : state.aliases)
    receipt.not_taken.push_back(alias + ": another name of " + name + ", which is kept once");
  if (state.frozen_excluded) receipt.not_taken.push_back("frozen parameters: the save left them out");
  if (state.ranks > 1 && !state.buffers.empty())
    receipt.not_taken.push_back("buffers of ranks other than 0: DeepSpeed saves rank 0's");
  for (const auto& note : state.notes) receipt.not_taken.push_back(note);
  return slices;
}

}  // namespace

DeepSpeedReceipt import_deepspeed(const std::string& dir, const std::string& out, const DeepSpeedOptions& options) {
  const DeepSpeedFolder folder = open_deepspeed(dir, options.tag, options.weights_only);
  DeepSpeedReceipt receipt;
  receipt.source = folder.path;
  if (files::kind_of(out + "/" + folder.tag).exists)
    throw Error(ErrorCode::kArgument, out + " has a '" + folder.tag + "' already", "name a folder that has none");
  const DeepSpeedState state = sort_out(folder, options.weights_only);
  checkpoint::Content content;
  content.tag = folder.tag;
  content.slices = slices_of(folder, state, options, receipt);
  content.document = document_of(folder, state, receipt, content.slices);
  content.rank_document = Dict{{"states", Dict()}};
  const checkpoint::SaveResult saved = save_import(out, content);
  receipt.path = saved.path;
  receipt.bytes = saved.bytes;
  return receipt;
}

std::string DeepSpeedReceipt::to_string() const {
  std::string text = "imported " + source + " as " + path + ", " + size_text(bytes) + "\n";
  for (const auto& line : taken) text += "  taken: " + line + "\n";
  for (const auto& line : not_taken) text += "  not taken: " + line + "\n";
  return text;
}

}  // namespace gannet::convert
