// gannet checkpoint show for other formats: safetensors, an index of shards, a folder of weights, a
// DeepSpeed checkpoint.
#include <c10/core/ScalarType.h>

#include <iostream>

#include "base/format.h"
#include "base/table.h"
#include "base/text.h"
#include "checkpoint/export.h"
#include "cli/commands.h"
#include "convert/deepspeed_export.h"
#include "convert/deepspeed_folder.h"
#include "files/io.h"
#include "files/known_folder.h"
#include "files/weight_files.h"

namespace gannet::cli {
namespace {

void print(const std::string& head, Table& table, const std::vector<std::pair<std::string, std::string>>& aliases) {
  std::cout << head << "\n\n" << table.to_string();
  for (const auto& [alias, name] : aliases) std::cout << alias << ": another name of " << name << '\n';
}

void show_weights(const std::string& path) {
  const files::WeightFiles weights = files::open_weight_files(path);
  Table table({"tensor", "dtype", "shape"});
  for (const auto& tensor : weights.tensors) table.add({tensor.name, c10::toString(tensor.dtype), shape_text(tensor.shape)});
  print(formatted("{}: {} tensors", weights.taken_from, weights.tensors.size()), table, weights.aliases);
  if (const std::string beside = files::training_state_in(path); !beside.empty())
    std::cout << beside << ": the training state of another program, which `gannet checkpoint import` does not take\n";
}

void show_deepspeed(const std::string& folder, const std::string& tag) {
  std::vector<std::string> notes;
  const checkpoint::ExportSource source = convert::deepspeed_weights(folder, tag, /*exclude_frozen=*/false, notes);
  Table table({"tensor", "dtype", "shape"});
  for (const auto& tensor : source.tensors)
    table.add({tensor.name, c10::toString(tensor.info.dtype), shape_text(tensor.info.shape)});
  print(formatted("{}: DeepSpeed's, {} tensors; `gannet checkpoint import` takes its optimizer states too", source.path,
                  source.tensors.size()),
        table, source.aliases);
  for (const std::string& note : notes) std::cout << note << '\n';
}

}  // namespace

bool show_foreign(const std::string& path, const std::string& tag) {
  if (convert::is_deepspeed_folder(path)) {
    show_deepspeed(path, tag);
    return true;
  }
  const bool is_file = files::kind_of(path).is_file;
  if (is_file && !path.ends_with(".index.json") && !files::is_safetensors(path)) {
    show_pt(path);  // prints a tree, since a torch.save file may hold anything
    return true;
  }
  if (!is_file && !files::is_weights_folder(path)) return false;
  show_weights(path);
  return true;
}

}  // namespace gannet::cli
