// gannet estimate: what a model takes on each rank for every ZeRO stage and offload, and whether this machine has it.
#include <gannet/config.h>
#include <gannet/error.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iostream>
#include <memory>
#include <optional>

#include "base/machine_memory.h"
#include "base/text.h"
#include "checkpoint/export.h"
#include "cli/commands.h"
#include "cli/table.h"
#include "config/document.h"
#include "interfaces/accelerator.h"
#include "interfaces/optimizer.h"
#include "interfaces/preference.h"
#include "tensor/dtype.h"
#include "zero/fit.h"

namespace gannet::cli {
namespace {

using config::Document;
using zero::Tier;

struct Arguments {
  std::string parameters, largest, dtype, config, accelerator, device_memory, nvme, checkpoints;
  uint32_t ranks = 1, ranks_per_host = 0;
};

// "1.3B", "124M", "350k", "7e9" or a plain number of elements.
uint64_t count_of(const std::string& option, const std::string& text) {
  constexpr std::pair<const char*, double> kUnits[] = {{"", 1}, {"k", 1e3}, {"m", 1e6}, {"b", 1e9}, {"g", 1e9}, {"t", 1e12}};
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, code] = std::from_chars(text.data(), end, number);
  const std::string unit = lower(std::string_view(rest, static_cast<size_t>(end - rest)));
  if (code == std::errc())
    for (const auto& [name, factor] : kUnits)
      if (unit == name && number * factor >= 1 && number * factor <= 1e15) return static_cast<uint64_t>(number * factor + 0.5);
  throw Error(ErrorCode::kArgument, option + ": '" + text + "' is not a number of parameters",
              "write it like 1.3B, 124M or 124439808");
}

// The size of a token embedding, in a transformer the largest parameter: 4000 sqrt(P) is within a factor of 2.5 of it from
// GPT-2 (124 M) to Llama 3 (70 B).
uint64_t guessed_largest(uint64_t parameters) {
  return std::min(parameters, static_cast<uint64_t>(4000 * std::sqrt(static_cast<double>(parameters))));
}

// What the config says that bears on memory. It is read from the document, so that an incomplete config (no batch size) will do.
class Read {
 public:
  explicit Read(const Document* document) : document_(document) {}

  const Value* find(const std::string& path) const {
    const Value* value = document_ ? document_->find(path) : nullptr;
    return !value || value->is_null() || (value->is_string() && value->as_string() == "auto") ? nullptr : value;
  }
  std::string text(const std::string& path) const {
    const Value* value = find(path);
    return value && value->is_string() ? value->as_string() : "";
  }
  bool is_true(const std::string& path, bool otherwise) const {
    const Value* value = find(path);
    return value && value->is_bool() ? value->as_bool() : otherwise;
  }
  uint64_t number(const std::string& path, uint64_t otherwise) const {
    const Value* value = find(path);
    return value && value->is_int() && value->as_int() >= 0 ? static_cast<uint64_t>(value->as_int()) : otherwise;
  }
  Tier tier(const std::string& path) const {
    const std::string name = lower(text(path));
    if (name.empty() || name == "none") return Tier::kNone;
    if (name == "cpu") return Tier::kCpu;
    if (name == "nvme") return Tier::kNvme;
    throw Error(ErrorCode::kUnsupported,
                origin(path) + ": " + path + ": an estimate is made for none, cpu and nvme, not for '" + name + "'");
  }
  std::string origin(const std::string& path) const { return document_ ? document_->origin_of(path).to_string() : ""; }
  Dict params(const std::string& block) const {
    const Value* value = find("/" + block + "/params");
    return value && value->is_dict() ? value->as_dict() : Dict{};
  }

 private:
  const Document* document_;
};

uint32_t size_of_dtype(const std::string& name) { return name == "fp64" ? 8 : name == "fp32" ? 4 : 2; }

std::string training_dtype(const Arguments& arguments, const Read& read) {
  if (!arguments.dtype.empty()) return arguments.dtype;
  if (read.is_true("/fp16/enabled", false)) return "fp16";
  return arguments.config.empty() || read.is_true("/bf16/enabled", false) ? "bf16" : "fp32";
}

// Per-element states of the optimizer that the config names, as its plugin declares them.
std::optional<uint32_t> state_bytes(plugin::Registry& registry, const Read& read, uint32_t master_bytes, const Host& host) {
  const std::string type = read.text("/optimizer/type");
  if (type.empty()) return std::nullopt;
  const plugin::Plugin& plugin = registry.require(GANNET_KIND_OPTIMIZER, type, "cpu");
  Dict params = read.params("optimizer");
  std::erase_if(params.entries(), [](const Dict::Entry& one) {  // filled in by another program, and of no weight in bytes
    return one.second.is_string() && one.second.as_string() == "auto";
  });
  const Optimizer optimizer(
      plugin,
      plugin::parse_params(plugin, params, [&](const std::string& member) { return read.origin("/optimizer/params/" + member); }),
      host);
  uint32_t bytes = 0;
  for (const auto& state : optimizer.states())
    if (state.extent == GANNET_STATE_PER_ELEMENT)
      bytes +=
          state.dtype == GANNET_DTYPE_NONE ? master_bytes : static_cast<uint32_t>(c10::elementSize(to_scalar_type(state.dtype)));
  return bytes;
}

zero::Plan plan_of(const Arguments& arguments, const Read& read, std::optional<uint32_t> plugin_state_bytes,
                   const std::string& dtype) {
  zero::Plan plan;
  plan.model.parameters = count_of("--parameters", arguments.parameters);
  plan.model.largest =
      arguments.largest.empty() ? guessed_largest(plan.model.parameters) : count_of("--largest", arguments.largest);
  if (plan.model.largest > plan.model.parameters)
    throw Error(ErrorCode::kArgument, "--largest " + arguments.largest + " is more than all parameters, " + arguments.parameters);
  plan.model.param_bytes = size_of_dtype(dtype);
  plan.model.master_bytes = plan.model.param_bytes == 2 ? 4 : 0;
  const std::string accumulation = read.text("/data_types/grad_accum_dtype");
  plan.model.grad_bytes = accumulation.empty() || dtype == "fp64" ? plan.model.param_bytes : size_of_dtype(accumulation);
  plan.model.state_bytes = plugin_state_bytes.value_or(2 * std::max(4u, plan.model.param_bytes));
  plan.ranks = arguments.ranks;
  plan.ranks_per_host = arguments.ranks_per_host > 0 ? std::min(arguments.ranks, arguments.ranks_per_host) : arguments.ranks;

  const std::string section = "/zero_optimization/", offload = section + "offload_optimizer/";
  auto& buffers = plan.buffers;
  buffers.reduce_bucket_size = read.number(section + "reduce_bucket_size", buffers.reduce_bucket_size);
  buffers.prefetch_bucket_size = read.number(section + "stage3_prefetch_bucket_size", buffers.prefetch_bucket_size);
  buffers.sub_group_size = read.number(section + "sub_group_size", buffers.sub_group_size);
  buffers.buffer_count = read.number(offload + "buffer_count", buffers.buffer_count);
  buffers.pin_memory = read.is_true(offload + "pin_memory", buffers.pin_memory);
  plan.placement.stage = static_cast<int>(read.number(section + "stage", 0));
  if (plan.placement.stage >= 1) plan.placement.offload_optimizer = read.tier(offload + "device");
  if (plan.placement.stage == 3) plan.placement.offload_param = read.tier(section + "offload_param/device");
  return plan;
}

// The device that ranks of this machine would train on; nullptr where there is none but the CPU, and `why_not` says so.
std::unique_ptr<Accelerator> open_accelerator(plugin::Registry& registry, const std::string& wanted, const Host& host,
                                              std::string& why_not) {
  const std::vector<std::string> best(kAcceleratorsBestFirst.begin(), kAcceleratorsBestFirst.end()), named{wanted};
  why_not = "no plugin of an accelerator was found";
  for (const std::string& name : wanted == "auto" ? best : named) {
    const plugin::Plugin* plugin = registry.find(GANNET_KIND_ACCELERATOR, name);
    if (!plugin) continue;
    try {
      return std::make_unique<Accelerator>(
          *plugin, plugin::parse_params(*plugin, {}, [](const std::string& member) { return member; }), host);
    } catch (const Error& error) {
      why_not = error.message();
    }
  }
  return nullptr;
}

std::optional<uint64_t> known(uint64_t free) { return free == UINT64_MAX ? std::nullopt : std::optional(free); }

std::string this_machine(const MachineMemory& memory, const zero::Room& room, const std::string& nvme,
                         const std::string& checkpoints, const Accelerator* accelerator) {
  std::string text =
      "This machine: " + size_text(memory.physical_bytes) + " of memory, " + size_text(memory.available_bytes) + " available";
  if (memory.cgroup.limit_bytes)
    text += "; its cgroup may take " + size_text(*memory.cgroup.limit_bytes) + ", " + size_text(*memory.cgroup.free_bytes) +
            " of it still free";
  if (memory.address_space_limit_bytes) text += "; ulimit -v " + size_text(*memory.address_space_limit_bytes);
  if (memory.data_limit_bytes) text += "; ulimit -d " + size_text(*memory.data_limit_bytes);
  if (accelerator) {
    const Accelerator::Device device = accelerator->device(0);
    text += "; " + std::to_string(accelerator->device_count()) + " x " + device.name + " with " + size_text(device.memory_bytes) +
            ", " + size_text(device.free_bytes) + " free";
  }
  if (room.nvme) text += "; " + size_text(*room.nvme) + " of disk free in " + nvme;
  if (room.checkpoint) text += "; " + size_text(*room.checkpoint) + " in " + checkpoints;
  return text;
}

void print_table(const zero::Plan& plan, const zero::Room& room, const std::string& config) {
  std::vector<std::string> header = {"stage", "offload_optimizer", "offload_param"};
  for (const char* name : {"device", "host", "of it pinned"})
    if (!plan.device_is_host || name == std::string("host")) header.push_back(plan.device_is_host ? "memory" : name);
  for (const char* name : {"NVMe", "checkpoint", "on this machine"}) header.push_back(name);
  Table table(header);
  for (const zero::Placement& placement : zero::legal_placements()) {
    zero::Plan one = plan;
    one.placement = placement;
    const zero::Bytes bytes = zero::estimate(one);
    std::vector<std::string> row = {std::to_string(placement.stage), to_string(placement.offload_optimizer),
                                    to_string(placement.offload_param)};
    const auto add = [&](uint64_t size) { row.push_back(size == 0 ? "-" : size_text(size)); };
    if (!plan.device_is_host) add(bytes.device);
    add(bytes.host);
    if (!plan.device_is_host) add(bytes.pinned);
    add(bytes.nvme);
    add(bytes.checkpoint);
    std::vector<std::string> unknown, lacking;
    if (!plan.device_is_host && !room.device) unknown.push_back("device");
    if (bytes.nvme > 0 && !room.nvme) unknown.push_back("NVMe");
    for (const zero::Lack& lack : zero::lacks(one, room))
      lacking.push_back(size_text(lack.needed - lack.free) + " of " + lack.kind);
    row.push_back(!lacking.empty()  ? "lacks " + join(lacking, ", ")
                  : unknown.empty() ? "fits"
                                    : "unknown: " + join(unknown, ", "));
    if (!config.empty() && placement == plan.placement) row.back() += "   <- " + config;
    table.add(row);
  }
  std::cout << table.to_string();
}

void estimate(const Arguments& arguments) {
  const std::shared_ptr<const Document> document = arguments.config.empty() ? nullptr : Document::from_file(arguments.config);
  const Read read(document.get());
  const Host host;
  std::vector<std::string> plugin_paths;
  if (const Value* paths = read.find("/plugins/path"); paths && paths->is_list())
    for (const Value& path : paths->as_list()) plugin_paths.push_back(path.as_string());
  plugin::Registry registry({.explicit_paths = plugin_paths});

  const std::string dtype = training_dtype(arguments, read);
  const auto states = state_bytes(registry, read, std::max(4u, size_of_dtype(dtype)), host);
  zero::Plan plan = plan_of(arguments, read, states, dtype);
  const std::string named = !arguments.accelerator.empty() ? arguments.accelerator : read.text("/accelerator/type");
  const std::string wanted = named.empty() ? "auto" : lower(named);
  plan.device_is_host = wanted == "cpu";
  std::string why_not;
  const auto accelerator = plan.device_is_host ? nullptr : open_accelerator(registry, wanted, host, why_not);
  if (accelerator && accelerator->device(0).torch_device_type == static_cast<int>(c10::DeviceType::CPU))
    plan.device_is_host = true;

  const MachineMemory memory = machine_memory();
  zero::Room room = zero::room_of(memory);
  if (!arguments.device_memory.empty())
    room.device = checkpoint::parse_size(arguments.device_memory);
  else if (accelerator)
    room.device = accelerator->device(0).free_bytes;
  std::string nvme = arguments.nvme;
  for (const char* block : {"offload_optimizer", "offload_param"})
    if (nvme.empty()) nvme = read.text(std::string("/zero_optimization/") + block + "/nvme_path");
  if (!nvme.empty()) room.nvme = known(free_bytes(nvme));
  if (!arguments.checkpoints.empty()) room.checkpoint = known(free_bytes(arguments.checkpoints));

  std::cout << "Bytes on each of " << plan.ranks << (plan.ranks == 1 ? " rank" : " ranks") << " (" << plan.ranks_per_host
            << " on a host), for " << arguments.parameters << " parameters in " << dtype << ", the largest of "
            << plan.model.largest << (arguments.largest.empty() ? " (a guess: --largest says it)" : "") << ", with "
            << plan.model.state_bytes << " bytes of optimizer states for each" << (states ? "" : " (Adam)") << ":\n\n";
  print_table(plan, room, arguments.config);
  std::cout << "\nNot counted: activations, which grow with the batch, and the program itself. A checkpoint has "
            << size_text(zero::checkpoint_bytes(plan.model)) << ", shared among the ranks.\n"
            << this_machine(memory, room, nvme, arguments.checkpoints, accelerator.get()) << ".\n";
  if (!plan.device_is_host && !accelerator)
    std::cout << "No device is usable here (" << why_not
              << "): --device-memory 80GiB says what yours has, --accelerator cpu trains in the host's memory.\n";
  if (arguments.config.empty()) return;
  try {
    zero::fit(plan, room);
    std::cout << arguments.config << ": " << to_string(plan.placement) << " fits"
              << (plan.device_is_host || room.device ? "" : ", if the device does") << ".\n";
  } catch (const Error& error) {
    std::cout << arguments.config << ": " << error.what() << '\n';
  }
}

}  // namespace

void add_estimate(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  auto* command = app.add_subcommand(
      "estimate", "Memory of a model on each rank, for every ZeRO stage and offload, and whether this machine has it");
  command->add_option("--parameters", arguments->parameters, "of the model: 1.3B, 124M, 124439808")->required();
  command->add_option("--largest", arguments->largest, "elements of the largest parameter; else a guess from the size");
  command->add_option("--ranks", arguments->ranks, "processes in all")->check(CLI::Range(1, 1 << 20))->capture_default_str();
  command->add_option("--ranks-per-host", arguments->ranks_per_host, "of them on a host; else all")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--dtype", arguments->dtype, "trained in; else as the config says, else bf16")
      ->check(CLI::IsMember({"bf16", "fp16", "fp32", "fp64"}));
  command->add_option("--config", arguments->config,
                      "ds_config.json: its row is marked, its sizes of buffers and its optimizer count");
  command->add_option("--accelerator", arguments->accelerator, "cpu, cuda ...; else the config's, else the best that is usable");
  command->add_option("--device-memory", arguments->device_memory,
                      "free memory of a device, 80GiB: for a machine that is not this one");
  command->add_option("--nvme", arguments->nvme, "a folder on the disk for offload; else the config's nvme_path");
  command->add_option("--checkpoints", arguments->checkpoints, "the folder of checkpoints, to see whether one has room");
  command->callback([arguments] { estimate(*arguments); });
}

}  // namespace gannet::cli
