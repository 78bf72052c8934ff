#include "convert/deepspeed_export.h"

#include <gannet/error.h>

#include <map>
#include <memory>
#include <set>

#include "base/format.h"
#include "convert/deepspeed_state.h"

namespace gannet::convert {
namespace {

// Stages 1 to 3 name their masters. Stage 0 does not; if they cannot be told apart, the model's own
// values are used.
DeepSpeedState weights_of(const DeepSpeedFolder& folder, std::vector<std::string>& notes) {
  if (!folder.optimizers.empty()) return sort_out(folder, /*weights_only=*/true);
  try {
    return sort_out(folder, /*weights_only=*/false);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported && error.code() != ErrorCode::kMismatch) throw;
    notes.push_back(formatted("the values are the model's own, not the optimizer's fp32 masters: {}", error.message()));
    return sort_out(folder, /*weights_only=*/true);
  }
}

}  // namespace

checkpoint::ExportSource deepspeed_weights(const std::string& dir, const std::string& tag, bool exclude_frozen,
                                           std::vector<std::string>& notes) {
  const DeepSpeedFolder folder = open_deepspeed(dir, tag, /*weights_only=*/true);
  const DeepSpeedState state = weights_of(folder, notes);
  const auto bytes = std::make_shared<std::map<std::string, std::shared_ptr<StoredBytes>>>();
  checkpoint::ExportSource source{folder.path, {}, {}, [bytes](const std::vector<checkpoint::Target>& targets) {
                                    for (const auto& target : targets)
                                      bytes->at(target.name)
                                          ->copy_out(static_cast<uint64_t>(target.begin) * target.into.element_size(),
                                                     target.into.nbytes(), static_cast<char*>(target.into.mutable_data_ptr()));
                                  }};
  files::ReadAmount amount;
  const auto add = [&](const std::vector<ImportedTensor>& tensors) {
    for (const ImportedTensor& tensor : tensors) {
      if (!bytes->emplace(tensor.name, files::stored(tensor.pieces, tensor.dtype)).second)
        throw Error(ErrorCode::kCorrupt, formatted("{}: two tensors are named {}", folder.path, tensor.name));
      source.tensors.push_back({tensor.name, {tensor.name, tensor.dtype, tensor.shape}});
      amount.add(tensor.pieces);
    }
  };
  add(state.trained);
  if (!exclude_frozen) add(state.frozen);
  add(state.buffers);
  amount.check();
  for (const auto& [alias, name] : state.aliases)
    if (bytes->contains(name) && !bytes->contains(alias)) source.aliases.emplace_back(alias, name);
  if (exclude_frozen && !state.frozen.empty()) notes.push_back(formatted("{} frozen parameters: excluded", state.frozen.size()));
  if (state.frozen_excluded) notes.push_back(frozen_note(state));
  return source;
}

}  // namespace gannet::convert
