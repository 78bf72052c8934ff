// gannet estimate: the memory of a model on each rank for every ZeRO stage and offload, and whether
// it fits this machine.
#include "estimate/estimate.h"

#include <gannet/error.h>

#include <charconv>
#include <iostream>
#include <memory>
#include <optional>

#include "base/format.h"
#include "base/text.h"
#include "checkpoint/export.h"
#include "cli/commands.h"
#include "config/document.h"

namespace gannet::cli {
namespace {

struct EstimateArguments {
  std::string parameters, largest, dtype, config, accelerator, device_memory, nvme, checkpoints;
  uint32_t ranks = 1, ranks_per_host = 0;
  uint64_t layers = 0, width = 0, heads = 0, sequence = 0;
  int64_t micro_batch = 1;
};

// Parses a number of elements: "1.3B", "124M", "350k", "7e9" or a plain number.
uint64_t count_of(const std::string& option, const std::string& text) {
  constexpr std::pair<const char*, double> kUnits[] = {{"", 1}, {"k", 1e3}, {"m", 1e6}, {"b", 1e9}, {"g", 1e9}, {"t", 1e12}};
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, code] = std::from_chars(text.data(), end, number);
  const std::string unit = lower(std::string_view(rest, static_cast<size_t>(end - rest)));
  if (code == std::errc())
    for (const auto& [name, factor] : kUnits)
      if (unit == name && number * factor >= 1 && number * factor <= 1e15) return static_cast<uint64_t>(number * factor + 0.5);
  throw Error(ErrorCode::kArgument, formatted("{}: '{}' is not a number of parameters", option, text),
              "write it like 1.3B, 124M or 124439808");
}

void estimate(const EstimateArguments& arguments) {
  EstimateRequest request;
  request.parameters = count_of("--parameters", arguments.parameters);
  request.said = arguments.parameters;
  if (!arguments.largest.empty()) request.largest = count_of("--largest", arguments.largest);
  if (request.largest > request.parameters)
    throw Error(ErrorCode::kArgument,
                formatted("--largest {} is more than all parameters, {}", arguments.largest, arguments.parameters));
  request.dtype = arguments.dtype;
  if (!arguments.config.empty()) request.document = config::Document::from_file(arguments.config);
  request.config_name = arguments.config;
  request.ranks = arguments.ranks;
  request.ranks_per_host = arguments.ranks_per_host;
  request.accelerator = arguments.accelerator;
  if (!arguments.device_memory.empty()) request.device_bytes = checkpoint::parse_size(arguments.device_memory);
  request.nvme = arguments.nvme;
  request.checkpoints = arguments.checkpoints;
  if (arguments.layers || arguments.width || arguments.heads || arguments.sequence) {
    if (!(arguments.layers && arguments.width && arguments.heads && arguments.sequence))
      throw Error(ErrorCode::kArgument, "the activations of a transformer follow from --layers, --width, --heads and --seq-len",
                  "give all four, or none to leave activations out");
    request.micro_batch = arguments.micro_batch;
    request.sizes = {{"--width", static_cast<int64_t>(arguments.width)},
                     {"--width over --heads", static_cast<int64_t>(arguments.width / arguments.heads)},
                     {"--seq-len", static_cast<int64_t>(arguments.sequence)}};
    request.transformer = TransformerSize{arguments.layers, arguments.width, arguments.heads,
                                          arguments.sequence * static_cast<uint64_t>(arguments.micro_batch)};
  }
  std::cout << estimate_text(request);
}

}  // namespace

void add_estimate(CLI::App& app) {
  auto arguments = std::make_shared<EstimateArguments>();
  auto* command = app.add_subcommand(
      "estimate", "Estimate the memory of a model on each rank, for every ZeRO stage and offload, and whether it fits");
  command->add_option("--parameters", arguments->parameters, "parameters of the model: 1.3B, 124M, 124439808")->required();
  command->add_option("--largest", arguments->largest, "elements of the largest parameter (default: a guess from the size)");
  command->add_option("--ranks", arguments->ranks, "number of processes")->check(CLI::Range(1, 1 << 20))->capture_default_str();
  command->add_option("--ranks-per-host", arguments->ranks_per_host, "processes on one host (default: all)")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--dtype", arguments->dtype, "training precision (default: the config's, else bf16)")
      ->check(CLI::IsMember({"bf16", "fp16", "fp32", "fp64"}));
  command->add_option("--config", arguments->config,
                      "ds_config.json: marks its row, and sets the buffer sizes and the optimizer");
  command->add_option("--accelerator", arguments->accelerator,
                      "cpu, cuda ... (default: the config's, else the best that is usable)");
  command->add_option("--device-memory", arguments->device_memory, "free memory of a device, such as 80GiB, for another machine");
  command->add_option("--nvme", arguments->nvme, "a folder on the drive for offload (default: the config's nvme_path)");
  command->add_option("--layers", arguments->layers, "blocks of a transformer: its activations are counted, by formula")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--width", arguments->width, "its hidden size")->check(CLI::Range(1, 1 << 24));
  command->add_option("--heads", arguments->heads, "its attention heads")->check(CLI::Range(1, 1 << 20));
  command->add_option("--seq-len", arguments->sequence, "tokens of a sample")->check(CLI::Range(1, 1 << 30));
  command->add_option("--micro-batch", arguments->micro_batch, "samples of a micro-batch")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--checkpoints", arguments->checkpoints, "the folder of checkpoints, to check whether one fits");
  command->callback([arguments] { estimate(*arguments); });
}

}  // namespace gannet::cli
