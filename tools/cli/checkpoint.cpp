// gannet checkpoint list | verify | show | export: inspects a folder of checkpoints without the
// program that saved it.
#include "checkpoint/checkpoint.h"

#include <c10/core/ScalarType.h>
#include <gannet/error.h>

#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <optional>

#include "base/format.h"
#include "base/table.h"
#include "base/text.h"
#include "checkpoint/export.h"
#include "cli/commands.h"
#include "cli/export_deepspeed.h"
#include "convert/deepspeed_export.h"
#include "convert/deepspeed_folder.h"
#include "convert/export_pt.h"
#include "convert/exported_model.h"
#include "files/io.h"
#include "files/state_dict.h"

namespace gannet::cli {
namespace {

using checkpoint::ListedCheckpoint;
using checkpoint::Opened;

struct CheckpointArguments {
  std::string folder, tag, out, dtype, max_shard_size, format;
  ToDeepSpeedArguments to_deepspeed;
  bool json = false, ema = false, exclude_frozen = false, safe_serialization = false;
};

constexpr int kBroken = 3;  // exit code if a checkpoint is not intact

std::vector<ListedCheckpoint> listed(const std::string& folder) {
  std::vector<ListedCheckpoint> all = checkpoint::list(folder);
  if (all.empty()) checkpoint::open(folder, {});  // throws an error with the reason
  return all;
}

void list(const CheckpointArguments& arguments) {
  Table table({"tag", "step", "saved at", "size", "state"});
  bool all_whole = true;
  for (const ListedCheckpoint& one : listed(arguments.folder)) {
    std::string state = one.problem.empty() ? "complete" : formatted("BROKEN: {}", one.problem);
    all_whole = all_whole && one.problem.empty();
    if (one.is_latest) state += " (latest)";
    table.add({one.tag, one.step < 0 ? "-" : std::to_string(one.step), one.saved_at.empty() ? "-" : one.saved_at,
               one.bytes == 0 ? "-" : size_text(one.bytes), state});
  }
  std::cout << table.to_string() << std::flush;
  if (!all_whole) throw CLI::RuntimeError(kBroken);  // the rows give the reason for each one
  const Opened opened = checkpoint::open(arguments.folder, {});
  for (const std::string& note : opened.notes()) std::cerr << "gannet: " << note << '\n';
}

void verify(const CheckpointArguments& arguments) {
  std::vector<std::string> tags;
  if (!arguments.tag.empty())
    tags = {arguments.tag};
  else
    for (const ListedCheckpoint& one : listed(arguments.folder)) tags.push_back(one.tag);
  bool all_whole = true;
  for (const std::string& tag : tags) {
    std::vector<std::string> faults;
    std::vector<std::string> elsewhere;
    uint64_t tensors = 0;
    try {
      const Opened opened = checkpoint::open(arguments.folder, {.tag = tag});
      faults = opened.verify();
      tensors = opened.tensors().size();
      elsewhere = opened.elsewhere();
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kNotFound) throw;
      faults = {error.message()};
    }
    if (faults.empty() && elsewhere.empty())
      std::cout << tag << ": complete, " << tensors << " tensors, every byte matches its checksum\n";
    if (faults.empty() && !elsewhere.empty())
      std::cout << tag << ": every byte here matches its checksum; other machines have " << join(elsewhere, ", ") << '\n';
    for (const std::string& fault : faults) std::cout << tag << ": " << fault << '\n';
    all_whole = all_whole && faults.empty();
  }
  std::cout.flush();
  if (!all_whole) throw CLI::RuntimeError(kBroken);
}

void show(const CheckpointArguments& arguments) {
  const files::PathKind kind = files::kind_of(arguments.folder);
  if (kind.is_file && (arguments.json || !arguments.tag.empty()))
    throw Error(ErrorCode::kArgument, formatted("{} is a file: TAG and --json are for folders of checkpoints", arguments.folder));
  if (kind.exists && !arguments.json && !checkpoint::holds_checkpoints(arguments.folder) &&
      show_foreign(arguments.folder, arguments.tag))
    return;
  const Opened opened = checkpoint::open(arguments.folder, {.tag = arguments.tag});
  for (const std::string& note : opened.notes()) std::cerr << "gannet: " << note << '\n';
  if (arguments.json) {
    List tensors;
    for (const auto& tensor : opened.tensors())
      tensors.push_back(Dict{{"name", tensor.name},
                             {"dtype", c10::toString(tensor.dtype)},
                             {"shape", List(tensor.shape.begin(), tensor.shape.end())}});
    List ranks;
    for (uint32_t rank = 0; rank < opened.world_size(); ++rank) ranks.push_back(opened.rank_document(rank));
    std::cout << Value(Dict{{"tag", opened.tag()},
                            {"document", opened.document()},
                            {"mesh", opened.mesh().text()},
                            {"rank_documents", std::move(ranks)},
                            {"tensors", std::move(tensors)}})
                     .to_json()
              << '\n';
    return;
  }
  std::cout << opened.path() << ": saved by " << opened.world_size() << (opened.world_size() == 1 ? " rank" : " ranks");
  if (opened.mesh().axes().size() > 1) std::cout << " (" << opened.mesh().text() << ')';
  std::cout << "\n\n";
  constexpr size_t kWidth = 160;
  for (const auto& [key, value] : opened.document().entries()) {
    const std::string text = value.to_json();
    std::cout << key << ": " << text.substr(0, kWidth) << (text.size() > kWidth ? " ... (--json shows all)" : "") << '\n';
  }
  Table table({"tensor", "dtype", "shape"});
  for (const auto& tensor : opened.tensors()) {
    std::vector<std::string> sizes;
    for (int64_t size : tensor.shape) sizes.push_back(std::to_string(size));
    table.add({tensor.name, c10::toString(tensor.dtype), formatted("[{}]", join(sizes, ", "))});
  }
  std::cout << '\n' << table.to_string();
}

// The format that the file extension implies; "" for a folder and for an unknown extension.
std::string format_of(const std::string& out) {
  if (files::kind_of(out).is_folder) return "";
  if (out.ends_with(".safetensors")) return "safetensors";
  return files::is_pt_name(out) ? "pt" : "";
}

// Exports a Gannet or DeepSpeed checkpoint folder to a folder or a file.
void export_weights(const CheckpointArguments& arguments) {
  const std::string by_name = format_of(arguments.out);
  if (!arguments.format.empty() && !by_name.empty() && arguments.format != by_name)
    throw Error(ErrorCode::kArgument,
                formatted("--format {} and the name {} contradict each other", arguments.format, arguments.out),
                "leave --format out, or change the name");
  if (is_deepspeed_format(arguments.format)) {
    if (const char* given = arguments.ema                       ? "--ema"
                            : !arguments.dtype.empty()          ? "--dtype"
                            : !arguments.max_shard_size.empty() ? "--max-shard-size"
                                                                : nullptr)
      throw Error(
          ErrorCode::kArgument,
          formatted("--format {} holds a run's masters and states as they are: {} is for weights", arguments.format, given),
          formatted("leave {} out", given));
    return export_to_deepspeed(arguments.folder, arguments.tag, arguments.out, arguments.format, arguments.to_deepspeed);
  }
  arguments.to_deepspeed.refuse(arguments.format);
  const std::map<std::string, c10::ScalarType> dtypes = {{"fp32", c10::kFloat}, {"bf16", c10::kBFloat16}, {"fp16", c10::kHalf}};
  const std::string format = by_name.empty() ? arguments.format : by_name;
  checkpoint::ExportOptions options{.format = format == "pt" ? convert::pt_format() : checkpoint::safetensors_format()};
  if (!arguments.dtype.empty()) options.dtype = dtypes.at(arguments.dtype);
  if (!arguments.max_shard_size.empty()) options.max_shard_bytes = checkpoint::parse_size(arguments.max_shard_size);

  std::vector<std::string> notes;
  std::optional<Opened> opened;
  std::optional<convert::ExportedModelFiles> python;
  checkpoint::ExportSource source;
  if (!checkpoint::holds_checkpoints(arguments.folder) && convert::is_deepspeed_folder(arguments.folder)) {
    if (arguments.ema)
      throw Error(ErrorCode::kUnsupported, "--ema: a DeepSpeed checkpoint has no moving average", "leave --ema out");
    source = convert::deepspeed_weights(arguments.folder, arguments.tag, arguments.exclude_frozen, notes);
  } else {
    if (arguments.exclude_frozen)
      throw Error(ErrorCode::kUnsupported, "a Gannet checkpoint does not record which parameters were frozen",
                  "save with exclude_frozen_parameters");
    opened = checkpoint::open(arguments.folder, {.tag = arguments.tag});
    source = checkpoint::export_source(*opened, arguments.ema);
    notes = opened->notes();
    python = convert::exported_model_files({opened->path(), arguments.folder});
    if (python) convert::add_every_name(*python, options.format, source);
  }
  for (const std::string& note : notes) std::cerr << "gannet: " << note << '\n';
  const checkpoint::ExportResult exported = by_name.empty() ? checkpoint::export_model(source, arguments.out, options)
                                                            : checkpoint::export_file(source, arguments.out, options);
  std::cout << exported.tensors << " tensors of " << source.path << ", " << size_text(exported.bytes) << ", are in "
            << arguments.out << (by_name.empty() ? ":\n" : "\n");
  if (by_name.empty())
    for (const std::string& file : exported.files) std::cout << "  " << file << '\n';
  if (const std::string line = python && by_name.empty() ? convert::copy_python_config(*python, arguments.out) : "";
      !line.empty())
    std::cout << "  " << line << '\n';
  for (const std::string& line : exported.left_out) std::cout << "  left out: " << line << '\n';
}

// Adds the equivalent of DeepSpeed's script of the same name, with the same arguments.
void add_zero_to_fp32(CLI::App& app) {
  auto arguments = std::make_shared<CheckpointArguments>();
  auto* command = app.add_subcommand(
      "zero_to_fp32", "Write the fp32 weights of a DeepSpeed or Gannet checkpoint: an alias of `gannet checkpoint export`");
  command->add_option("folder", arguments->folder, "the folder given to save_checkpoint")->required();
  command->add_option("out", arguments->out, "a file, pytorch_model.bin or model.safetensors, or a folder to write into")
      ->required();
  command->add_option("-t,--tag", arguments->tag, "tag of the checkpoint (default: what 'latest' names)");
  command
      ->add_option("--max_shard_size,--max-shard-size", arguments->max_shard_size,
                   "size of a shard in a folder: 5GB, 500MB, 2GiB ...")
      ->default_str("5GB");
  command->add_flag("--safe_serialization", arguments->safe_serialization, "write safetensors, into a folder");
  command->add_flag("--exclude_frozen_parameters", arguments->exclude_frozen,
                    "leave frozen parameters out (DeepSpeed checkpoints only)");
  command->callback([arguments] {
    CheckpointArguments all = *arguments;
    all.dtype = "fp32";
    if (all.safe_serialization)
      all.format = "safetensors";
    else if (format_of(all.out).empty())
      all.format = "pt";
    export_weights(all);
  });
}

}  // namespace

void add_checkpoint(CLI::App& app) {
  auto* command = app.add_subcommand("checkpoint", "List, verify, show, export and import checkpoints");
  command->require_subcommand(1);
  auto arguments = std::make_shared<CheckpointArguments>();
  auto add = [&](const char* name, const char* what, void (*run)(const CheckpointArguments&)) {
    auto* added = command->add_subcommand(name, what);
    added->add_option("folder", arguments->folder, "the folder given to save_checkpoint")->required();
    added->callback([arguments, run] { run(*arguments); });
    return added;
  };
  add("list", "List every checkpoint, newest first, and whether it is complete; exit code 3 if one is not", list);
  add("verify", "Compare every byte with its checksum; exit code 3 if a checkpoint is incomplete or damaged", verify)
      ->add_option("tag", arguments->tag, "only this checkpoint");
  auto* showing = add(
      "show",
      "Show the contents of a checkpoint (Gannet's or DeepSpeed's), or of a file or folder of weights (safetensors, .pt, .bin)",
      show);
  showing->add_option("tag", arguments->tag, "tag of the checkpoint (default: the newest)");
  showing->add_flag("--json", arguments->json, "print everything as one JSON document");
  auto* exporting =
      add("export",
          "Write the weights of a Gannet or DeepSpeed checkpoint to one file, or to a folder in Hugging Face's layout; or a "
          "Gannet checkpoint as DeepSpeed's",
          export_weights);
  exporting->add_option("out", arguments->out, "a file (.bin, .pt, .pth, .safetensors), or the folder to write into")->required();
  exporting->add_option("--tag", arguments->tag, "tag of the checkpoint (default: the newest)");
  exporting
      ->add_option("--format", arguments->format,
                   "format of a folder: safetensors (the default), or pt: pytorch_model.bin; with the optimizer's states: "
                   "deepspeed, or universal: DeepSpeed's checkpoint for any stage and number of ranks")
      ->check(CLI::IsMember({"safetensors", "pt", "deepspeed", "universal"}));
  arguments->to_deepspeed.add_options(*exporting);
  exporting->add_option("--dtype", arguments->dtype, "dtype of floating-point tensors (default: as saved)")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  exporting->add_flag("--ema", arguments->ema, "the moving average of the parameters (gannet.ema)");
  exporting->add_option("--max-shard-size", arguments->max_shard_size, "size of a shard in a folder: 5GB, 500MB, 2GiB ...")
      ->default_str("5GB");
  add_import(*command);
  add_zero_to_fp32(app);
}

}  // namespace gannet::cli
