// gannet model info | check | cuts: a folder that python/gannet_export wrote, or a TorchScript file.
#include <gannet/error.h>
#include <gannet/exported.h>
#include <gannet/torch_script.h>

#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/format.h"
#include "base/table.h"
#include "base/text.h"
#include "cli/commands.h"

namespace gannet::cli {
namespace {

uint64_t numel_of(const ExportedTensor& tensor) {
  uint64_t numel = 1;
  for (const int64_t size : tensor.shape) numel *= static_cast<uint64_t>(size);
  return numel;
}

// One line for the graphs of equal relations: graphs of another mode or dtype may branch on sizes elsewhere.
void print_relations(const std::vector<ExportedGraph>& graphs) {
  std::map<std::string, std::vector<std::string>> names;  // by relations
  for (const ExportedGraph& one : graphs)
    if (!one.relations.empty()) names[join(one.relations, ", ")].push_back(one.name);
  if (!names.empty()) std::cout << '\n';
  for (const auto& [relations, alike] : names)
    std::cout << formatted("{} {} sizes with {}\n", alike.size() == graphs.size() ? "every graph" : join(alike, ", "),
                           alike.size() == 1 || alike.size() == graphs.size() ? "takes" : "take", relations);
}

bool is_torch_script(const std::string& path) { return std::filesystem::is_regular_file(path); }

void print_script(const std::string& path) {
  const TorchScriptModule model(path);
  uint64_t numel = 0, frozen = 0;
  for (const at::Tensor& one : model.parameters()) {
    numel += static_cast<uint64_t>(one.numel());
    if (!one.requires_grad()) frozen += static_cast<uint64_t>(one.numel());
  }
  std::cout << formatted("{}: {} parameters with {} elements, {} of them frozen; {} buffers; {} tied names\n\n", path,
                         model.parameters().size(), numel, frozen, model.buffers().size(), model.tied().size());
  std::vector<std::string> inputs;
  for (const TorchScriptModule::Input& one : model.inputs())
    inputs.push_back(one.name + (one.is_needed ? "" : " (has a default)"));
  std::cout << formatted("TorchScript, saved in {} mode; forward has {} operators and takes {}\n",
                         model.is_training() ? "train" : "eval", model.operators(), join(inputs, ", "));
  for (const auto& [other, name] : model.tied()) std::cout << other << ": another name of " << name << '\n';
}

void print_info(const std::string& folder) {
  if (is_torch_script(folder)) return print_script(folder);
  const ExportedConfig config = ExportedConfig::from(ModelConfig::read(folder), folder);
  uint64_t numel = 0, frozen = 0;
  for (const ExportedTensor& one : config.parameters) {
    numel += numel_of(one);
    if (!one.requires_grad) frozen += numel_of(one);
  }
  std::cout << formatted("{}: {} parameters with {} elements, {} of them frozen; {} buffers; {} tied names\n\n", folder,
                         config.parameters.size(), numel, frozen, config.buffers.size(), config.tied.size());
  Table table({"graph", "nodes", "exported with", "inputs"});
  const std::vector<ExportedGraph> graphs = config.graphs();
  for (const ExportedGraph& one : graphs) {
    std::vector<std::string> inputs;
    for (const ExportedInput& input : one.inputs) inputs.push_back(input.name + " " + input.dtype + input.shape);
    table.add({one.name, std::to_string(one.nodes), "PyTorch " + one.torch_version, join(inputs, ", ")});
  }
  std::cout << table.to_string();
  print_relations(graphs);
  for (const auto& [other, name] : config.tied) std::cout << other << ": another name of " << name << '\n';
}

// The file has no batch: that it loads says that every operator is there, and that the inputs are tensors.
void check_script(const std::string& path) {
  const TorchScriptModule model(path);
  std::cout << formatted(
      "{}: loads, with all {} operators of forward and {} parameters. A TorchScript file has no batch to compare "
      "with; an export by gannet_export has.\n",
      path, model.operators(), model.parameters().size());
}

void check(const std::string& folder) {
  if (is_torch_script(folder)) return check_script(folder);
  const ExportedCheck found = check_exported(folder);
  Table table({"graph", "loss there", "loss here", "gradients", "farthest", "norm there", "norm here", "result"});
  for (const ExportedCheck::Row& row : found.rows)
    table.add({row.graph, short_number(row.loss_there), short_number(row.loss_here), std::to_string(row.gradients), row.worst,
               short_number(row.worst_there), short_number(row.worst_here),
               row.is_bit_equal ? "bit-equal"
               : row.agrees     ? formatted("agrees ({})", short_number(row.worst_distance))
                                : "differs"});
  std::cout << table.to_string();
  if (!found.agrees())
    throw Error(ErrorCode::kMismatch, formatted("{} does not compute what its exporter saw", folder),
                "a file of the folder was changed, or an operator of this LibTorch differs: export the model again");
}

void print_cuts(const std::string& folder, const std::optional<size_t>& segments) {
  if (is_torch_script(folder))
    throw Error(ErrorCode::kUnsupported, formatted("{} is a TorchScript file, which Gannet does not divide into layers", folder),
                "export the Python model: python -m gannet_export MODULE:FUNCTION --example batch.npz --out model/");
  const ExportedCuts found = exported_cuts(folder, segments);
  std::cout << formatted("{}: {} parts of the graph {}; the first is '{}'\n\n", folder, found.cuts.size(), found.graph,
                         found.first_layer);
  Table table({"before", "node", "crosses", "shape", "dtype", "bytes"});
  for (const ExportedCut& cut : found.cuts) {
    bool is_first = true;
    for (const ExportedCut::Value& value : cut.values) {
      table.add({is_first ? cut.layer : "", is_first ? cut.node : "", value.name + (value.is_input ? " (input)" : ""),
                 value.shape, value.dtype, std::to_string(value.bytes)});
      is_first = false;
    }
  }
  std::cout << table.to_string()
            << "\nBytes are those of the export's example. What depends on no parameter is computed again in "
               "each part.\n";
}

}  // namespace

void add_model(CLI::App& app) {
  CLI::App* model = app.add_subcommand("model", "A model that was exported from Python by gannet_export");
  model->require_subcommand(1);
  auto folder = std::make_shared<std::string>();
  CLI::App* info = model->add_subcommand("info", "Print the graphs of a folder, their inputs, and the model's size");
  info->add_option("folder", *folder, "a folder that gannet_export wrote, or a TorchScript file")->required();
  info->callback([folder] { print_info(*folder); });
  CLI::App* checked =
      model->add_subcommand("check", "Run the batch of the export, and compare loss and gradients with the exporter's");
  checked->add_option("folder", *folder, "a folder that gannet_export wrote, or a TorchScript file")->required();
  checked->callback([folder] { check(*folder); });
  CLI::App* cuts = model->add_subcommand("cuts", "Print where the graph is cut into layers, and which values cross");
  cuts->add_option("folder", *folder, "a folder that gannet_export wrote")->required();
  auto segments = std::make_shared<size_t>(0);
  cuts->add_option("--segments", *segments,
                   "the cuts of this many groups of layers, as number_checkpoints makes them; default: all")
      ->check(CLI::PositiveNumber);
  cuts->callback([folder, segments] { print_cuts(*folder, *segments > 0 ? std::optional(*segments) : std::nullopt); });
}

}  // namespace gannet::cli
