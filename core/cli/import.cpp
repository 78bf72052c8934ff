// gannet checkpoint import: a checkpoint that DeepSpeed wrote, or the weights in files of PyTorch's, as one of ours.
#include <gannet/error.h>

#include <iostream>
#include <memory>

#include "checkpoint/files.h"
#include "cli/commands.h"
#include "exchange/deepspeed.h"
#include "exchange/deepspeed_folder.h"
#include "exchange/import_weights.h"
#include "exchange/state_dict.h"

namespace gannet::cli {
namespace {

struct Arguments {
  std::string from, out;
  std::vector<std::string> renames;
  exchange::DeepSpeedOptions options;
};

// "transformer.=" takes a prefix away, "=transformer." puts one in front of every name.
std::pair<std::string, std::string> parse_rename(const std::string& text) {
  const size_t at = text.find('=');
  if (at == text.npos)
    throw Error(ErrorCode::kArgument, "--rename " + text + ": there is no '=' in it",
                "write FROM=TO: names that begin with FROM then begin with TO");
  return {text.substr(0, at), text.substr(at + 1)};
}

// A file, or a folder as Hugging Face lays it out, holds weights alone.
void import_weights(const Arguments& arguments) {
  exchange::WeightsImport options;
  if (!arguments.options.tag.empty()) options.tag = arguments.options.tag;
  for (const auto& rename : arguments.renames) options.renames.push_back(parse_rename(rename));
  std::cout << exchange::import_weights(arguments.from, arguments.out, options).to_string();
}

void import_checkpoint(const Arguments& arguments) {
  if (checkpoint::kind_of(arguments.from).is_file ||
      (!exchange::is_deepspeed_folder(arguments.from) && exchange::is_pt_folder(arguments.from)))
    return import_weights(arguments);
  if (!exchange::is_deepspeed_folder(arguments.from) && arguments.options.tag.empty())
    exchange::open_deepspeed(arguments.from, "");  // says why in a sentence
  exchange::DeepSpeedOptions options = arguments.options;
  for (const auto& rename : arguments.renames) options.renames.push_back(parse_rename(rename));
  std::cout << exchange::import_deepspeed(arguments.from, arguments.out, options).to_string();
}

}  // namespace

void add_import(CLI::App& checkpoint) {
  auto arguments = std::make_shared<Arguments>();
  auto* command = checkpoint.add_subcommand(
      "import",
      "Make a checkpoint of what DeepSpeed saved (ZeRO stages 0 to 3, any number of ranks), or of a PyTorch file's weights");
  command
      ->add_option("from", arguments->from,
                   "the folder given to DeepSpeed's save_checkpoint, a .pt, .pth or .bin file with a state dict, or a folder "
                   "with pytorch_model.bin")
      ->required();
  command->add_option("out", arguments->out, "the folder of checkpoints to write into")->required();
  command->add_option("--tag", arguments->options.tag,
                      "this one; else what its 'latest' names. Of a file's weights: what to name the checkpoint (weights)");
  command->add_option("--rename", arguments->renames,
                      "FROM=TO: names that begin with FROM begin with TO instead; may be given several times");
  command->add_flag("--weights-only", arguments->options.weights_only, "without the optimizer's states");
  command->callback([arguments] { import_checkpoint(*arguments); });
}

}  // namespace gannet::cli
