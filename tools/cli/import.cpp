// gannet checkpoint import: converts a DeepSpeed checkpoint, or weights in PyTorch or safetensors
// files, to a Gannet checkpoint.
#include <gannet/error.h>

#include <iostream>
#include <memory>

#include "base/format.h"
#include "checkpoint/checkpoint.h"
#include "cli/commands.h"
#include "cli/export_deepspeed.h"
#include "convert/deepspeed.h"
#include "convert/deepspeed_folder.h"
#include "convert/import_weights.h"
#include "files/io.h"
#include "files/known_folder.h"
#include "files/weight_files.h"

namespace gannet::cli {
namespace {

struct ImportArguments {
  std::string from, out;
  std::vector<std::string> renames;
  convert::DeepSpeedOptions options;
};

// "transformer.=" removes a prefix, "=transformer." adds one to every name.
std::pair<std::string, std::string> parse_rename(const std::string& text) {
  return parse_pair("--rename", text, "write FROM=TO: it replaces the prefix FROM of names by TO");
}

// Imports weights only, from a file or a folder in Hugging Face's layout.
void import_weights(const ImportArguments& arguments) {
  convert::WeightsImport options;
  if (!arguments.options.tag.empty()) options.tag = arguments.options.tag;
  for (const auto& rename : arguments.renames) options.renames.push_back(parse_rename(rename));
  std::cout << convert::import_weights(arguments.from, arguments.out, options).to_string();
}

void import_checkpoint(const ImportArguments& arguments) {
  const files::PathKind kind = files::kind_of(arguments.from);
  if (kind.exists && !kind.is_folder) return import_weights(arguments);
  if (!convert::is_deepspeed_folder(arguments.from)) {
    if (files::is_weights_folder(arguments.from)) return import_weights(arguments);
    if (kind.is_folder && checkpoint::holds_checkpoints(arguments.from))
      throw Error(ErrorCode::kArgument, formatted("{} is already a folder of Gannet checkpoints", arguments.from),
                  "load it directly");
    files::refuse_known_folder(arguments.from);
    if (arguments.options.tag.empty()) convert::open_deepspeed(arguments.from, "");  // throws an error with the reason
  }
  convert::DeepSpeedOptions options = arguments.options;
  for (const auto& rename : arguments.renames) options.renames.push_back(parse_rename(rename));
  std::cout << convert::import_deepspeed(arguments.from, arguments.out, options).to_string();
}

}  // namespace

void add_import(CLI::App& checkpoint) {
  auto arguments = std::make_shared<ImportArguments>();
  auto* command = checkpoint.add_subcommand(
      "import",
      "Convert a DeepSpeed checkpoint (ZeRO stages 0 to 3, universal, pipelines, any number of ranks), or weights in PyTorch "
      "or safetensors files, to a Gannet checkpoint");
  command
      ->add_option("from", arguments->from,
                   "the folder given to DeepSpeed's save_checkpoint; or weights: a file with a state dict (.pt, .pth, .bin), a "
                   "safetensors file, an index of shards, or a folder of them in Hugging Face's layout")
      ->required();
  command->add_option("out", arguments->out, "the folder of checkpoints to write into")->required();
  command->add_option("--tag", arguments->options.tag,
                      "tag to import (default: what 'latest', or else 'latest_universal', names); for weights: tag of the new "
                      "checkpoint (weights)");
  command->add_option("--rename", arguments->renames,
                      "FROM=TO: replace the prefix FROM of names by TO; may be given several times");
  command->add_flag("--weights-only", arguments->options.weights_only, "leave the optimizer's states out");
  command->callback([arguments] { import_checkpoint(*arguments); });
}

}  // namespace gannet::cli
