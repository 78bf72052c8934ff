#include "convert/deepspeed.h"

#include <ATen/ops/empty.h>
#include <gannet/error.h>

#include <set>

#include "base/format.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "convert/deepspeed_document.h"
#include "convert/deepspeed_state.h"
#include "convert/renaming.h"
#include "convert/save_import.h"
#include "files/io.h"

namespace gannet::convert {
namespace {

checkpoint::Slice slice(std::string name, const ImportedTensor& tensor, const files::StoredPieces& pieces) {
  return {std::move(name), tensor.shape, 0,
          at::empty({files::numel_of(pieces)}, at::TensorOptions().dtype(tensor.dtype).device(at::kMeta)),
          files::stored(pieces, tensor.dtype)};
}

std::string count_text(size_t count, const char* one) { return formatted("{} {}{}", count, one, count == 1 ? "" : "s"); }

std::vector<checkpoint::Slice> slices_of(const DeepSpeedFolder& folder, const DeepSpeedState& state,
                                         const DeepSpeedOptions& options, DeepSpeedReceipt& receipt) {
  std::vector<checkpoint::Slice> slices;
  std::set<std::string> names, states;
  Renaming rename(options.renames);
  const auto renamed = [&](const ImportedTensor& tensor) {
    const std::string name = rename(tensor.name);
    if (!names.insert(name).second)
      throw Error(ErrorCode::kArgument, formatted("{}: two tensors are named {}, one of them by --rename", folder.path, name),
                  "choose other names");
    return name;
  };
  if (!folder.stages.empty())
    receipt.taken.push_back(formatted("a pipeline of {}, {} with tensors", count_text(folder.stages.size(), "stage"),
                                      count_text(folder.layers.size(), "layer")));
  int64_t numel = 0;
  for (const auto& tensor : state.trained) {
    const std::string name = renamed(tensor);
    numel += files::numel_of(tensor.pieces);
    slices.push_back(slice(formatted("parameter/{}", name), tensor, tensor.pieces));
    for (const auto& [key, pieces] : tensor.states) {
      slices.push_back(slice(formatted("state/{}/{}", key, name), tensor, pieces));
      states.insert(key);
    }
  }
  for (const auto& tensor : state.frozen)
    slices.push_back(slice(formatted("parameter/{}", renamed(tensor)), tensor, tensor.pieces));
  for (const auto& tensor : state.buffers)
    slices.push_back(slice(formatted("buffer/0/{}", renamed(tensor)), tensor, tensor.pieces));
  rename.check(folder.path);
  files::ReadAmount amount;
  for (const auto* tensors : {&state.trained, &state.frozen, &state.buffers})
    for (const auto& tensor : *tensors) {
      amount.add(tensor.pieces);
      for (const auto& [key, pieces] : tensor.states) amount.add(pieces);
    }
  amount.check();

  receipt.taken.push_back(
      formatted("{}, {} elements{}{}{}", count_text(state.trained.size(), "trained parameter"), numel,
                state.trained.empty() ? "" : std::string(" as ") + (state.trained[0].dtype == c10::kDouble ? "fp64" : "fp32"),
                state.frozen.empty() ? "" : formatted(", {} frozen", state.frozen.size()),
                state.buffers.empty() ? "" : formatted(", {}", count_text(state.buffers.size(), "buffer"))));
  if (!states.empty()) receipt.taken.push_back(formatted("optimizer states {}", join({states.begin(), states.end()}, ", ")));
  if (options.weights_only) receipt.not_taken.push_back("optimizer states: --weights-only");
  for (const auto& [alias, name] : state.aliases)
    receipt.not_taken.push_back(formatted("{}: another name of {}, which is kept once", alias, name));
  if (state.frozen_excluded) receipt.not_taken.push_back(frozen_note(state));
  if (state.ranks > 1 && !state.buffers.empty())
    receipt.not_taken.push_back("buffers of ranks other than 0: DeepSpeed saves rank 0's");
  for (const auto& note : state.notes) receipt.not_taken.push_back(note);
  return slices;
}

}  // namespace

namespace {

// Records the parameters of each group in DeepSpeed's order, the other names of tied parameters, and the flags of the
// optimizer's class, such as torch's "maximize". An export needs these; a load does not.
void record_groups(const DeepSpeedState& state, const DeepSpeedOptions& options, Dict& imported) {
  Renaming rename(options.renames);
  List groups(state.groups.size(), List());
  Dict flags;
  if (!state.groups.empty())
    for (const auto& [key, value] : state.groups[0].entries())
      if (value.is(files::Object::Kind::kBool)) flags[key] = value.boolean();
  imported["optimizer_flags"] = std::move(flags);
  for (const auto& tensor : state.trained) {
    if (tensor.group < 0 || tensor.group >= static_cast<int64_t>(groups.size())) return;
    groups[static_cast<size_t>(tensor.group)].as_list().push_back(rename(tensor.name));
  }
  imported["group_tensors"] = std::move(groups);
  Dict tied;
  for (const auto& [alias, name] : state.aliases) tied[alias] = rename(name);
  imported["tied"] = std::move(tied);
}

}  // namespace

DeepSpeedReceipt import_deepspeed(const std::string& dir, const std::string& out, const DeepSpeedOptions& options) {
  const DeepSpeedFolder folder = open_deepspeed(dir, options.tag, options.weights_only);
  DeepSpeedReceipt receipt;
  receipt.source = folder.path;
  check_import_folder(out, folder.tag);
  const DeepSpeedState state = sort_out(folder, options.weights_only);
  checkpoint::Content content;
  content.tag = folder.tag;
  content.slices = slices_of(folder, state, options, receipt);
  content.document = document_of(folder, state, receipt, content.slices);
  record_groups(state, options, content.document["imported"].as_dict());
  content.rank_document = Dict{{"states", Dict()}};
  const checkpoint::SaveResult saved = save_import(out, content);
  receipt.path = saved.path;
  receipt.bytes = saved.bytes;
  return receipt;
}

std::string DeepSpeedReceipt::to_string() const {
  std::string text = formatted("imported {} as {}, {}\n", source, path, size_text(bytes));
  for (const auto& line : taken) text += formatted("  taken: {}\n", line);
  for (const auto& line : not_taken) text += formatted("  not taken: {}\n", line);
  for (const auto& line : warnings) text += formatted("  warning: {}\n", line);
  return text;
}

}  // namespace gannet::convert
