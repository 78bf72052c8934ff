#include "doctor/probe.h"

#include <gannet/error.h>
#include <gannet/log.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "base/format.h"
#include "base/text.h"
#include "config/parse.h"
#include "device/accelerator.h"
#include "doctor/child.h"
#include "interfaces/offload.h"
#include "interfaces/optimizer.h"
#include "interfaces/scheduler.h"
#include "plugin/schema.h"

namespace gannet::doctor {
namespace {

// Libraries that come with a driver and are missing on a machine without the device.
constexpr const char* kDriverLibraries[] = {"libcuda.so", "libnvidia-", "libamdhip64.so", "libhsa-runtime64.so"};

bool is_for_a_driver(const std::string& message) {
  return std::any_of(std::begin(kDriverLibraries), std::end(kDriverLibraries), [&](const char* name) {
    return message.find(std::string("needs the library ") + name) != std::string::npos;
  });
}

// The params that a run gives the plugin if the config sets none, with a folder for nvme_path.
// Returns false if the plugin requires other params.
bool plain_params(const plugin::Plugin& plugin, Dict& params) {
  for (const auto* spec : plugin::specs_of(*plugin.descriptor)) {
    if (!(spec->flags & GANNET_PARAM_REQUIRED)) continue;
    if (spec->name != std::string_view("nvme_path")) return false;
    std::error_code failed;
    params["nvme_path"] = std::filesystem::temp_directory_path(failed).string();
  }
  return true;
}

// Creates an object of the plugin, and throws the errors of doing so. Skips Comms, which would wait
// for other ranks.
void make(const plugin::Plugin& plugin, Dict& out) {
  static const Host host;
  Dict given;
  if (plugin.kind() == GANNET_KIND_COMM || !plain_params(plugin, given)) return;
  // An optimizer's device may be absent; probing its accelerator decides instead.
  if (plugin.kind() == GANNET_KIND_OPTIMIZER && !plugin.device().empty() && lower(plugin.device()) != "cpu") return;
  plugin::ParamSet params = plugin::parse_params(plugin, given, {});
  switch (plugin.kind()) {
    case GANNET_KIND_OPTIMIZER:
      Optimizer(plugin, std::move(params), host).describe({});
      break;
    case GANNET_KIND_SCHEDULER:
      Scheduler(plugin, std::move(params), host, 1);
      break;
    case GANNET_KIND_OFFLOAD:
      Offload(plugin, std::move(params), host, 0);
      break;
    case GANNET_KIND_ACCELERATOR: {
      const Accelerator accelerator(plugin, std::move(params), host);
      const uint32_t count = accelerator.device_count();
      const Accelerator::Device device = accelerator.device(0);
      std::string text = count == 1 ? device.name : formatted("{} x {}", count, device.name);
      if (device.memory_bytes > 0)
        text += formatted(", {}, {} free", size_text(device.memory_bytes), size_text(device.free_bytes));
      out["remark"] = text;
      out["default_comm"] = accelerator.default_comm();
      out["plugin_device"] = accelerator.plugin_device();
      out["priority"] = static_cast<int64_t>(plugin::priority_of(plugin));
      break;
    }
    default:
      break;
  }
}

Dict line_of(const plugin::Plugin& plugin) {
  Dict line{{"kind", plugin::kind_name(plugin.kind())},
            {"name", plugin.name()},
            {"device", plugin.device()},
            {"version", plugin.version()}};
  try {
    make(plugin, line);
  } catch (const Error& error) {
    // A missing param that only a user knows is not a defect, nor is a missing device.
    if (error.code() == ErrorCode::kArgument || error.code() == ErrorCode::kConfig) return line;
    const bool is_absent = error.code() == ErrorCode::kUnavailable || error.code() == ErrorCode::kUnsupported;
    line[is_absent ? "not_here" : "broken"] = error.message();
    line["next_step"] = error.next_step();
  }
  return line;
}

// Runs in a child process. Returns a list of the file's plugins or, if it cannot be opened, one
// entry about the file.
std::string describe(plugin::Registry& registry, const plugin::Candidate& candidate) {
  set_log_sink([](LogLevel, const std::string&) {});
  List lines;
  try {
    for (const plugin::Plugin* plugin : registry.open_file(candidate.file)) lines.push_back(line_of(*plugin));
  } catch (const Error& error) {
    return Value(List{Dict{{is_for_a_driver(error.message()) ? "not_here" : "broken", error.message()},
                           {"next_step", error.next_step()}}})
        .to_json();
  }
  return Value(std::move(lines)).to_json();
}

std::string text_in(const Dict& line, const char* key) {
  const Value* found = line.find(key);
  return found && found->is_string() ? found->as_string() : "";
}

// The plugins listed in a file's note: "optimizer/adam@cpu".
std::vector<FoundPlugin> promised(const plugin::Candidate& candidate) {
  std::vector<FoundPlugin> plugins;
  for (const std::string& text : candidate.provides) {
    const size_t slash = std::min(text.find('/'), text.size()), at = std::min(text.find('@'), text.size());
    FoundPlugin& found = plugins.emplace_back();
    found.kind = text.substr(0, slash);
    found.name = slash < at ? text.substr(slash + 1, at - slash - 1) : "";
    found.device = at < text.size() ? text.substr(at + 1) : "";
  }
  if (plugins.empty()) plugins.emplace_back();
  for (FoundPlugin& found : plugins) {
    found.file = printable(candidate.file);
    found.tier = candidate.tier == GANNET_TIER_PINNED ? "pinned" : "stable";
  }
  return plugins;
}

// Removes the subject, which has its own columns: "plugin FILE needs ..." becomes "needs ...", and
// "optimizer plugin X 1.0 (FILE), in create: ..." becomes the text after the file.
std::string without_file(const std::string& message, const std::string& file) {
  const std::string head = formatted("plugin {} ", printable(file)), who = formatted("({})", file);
  if (message.starts_with(head)) return message.substr(head.size());
  const size_t at = message.find(who);
  if (at == std::string::npos) return message;
  const std::string rest = message.substr(at + who.size());  // ": what" or ", in create: what"
  return rest.starts_with(", ") || rest.starts_with(": ") ? rest.substr(2) : rest.substr(rest.find_first_not_of(' '));
}

ProbedFile broken(const plugin::Candidate& candidate, const std::string& reason, const std::string& next_step,
                  PluginState state) {
  ProbedFile probed{promised(candidate), "", ""};
  for (FoundPlugin& found : probed.plugins) {
    found.state = state;
    found.remark = without_file(reason, candidate.file);
    found.next_step = next_step;
  }
  return probed;
}

}  // namespace

ProbedFile probe(plugin::Registry& registry, const plugin::Candidate& candidate, std::chrono::seconds patience) {
  constexpr const char* kReplace = "rebuild it against this Gannet's SDK, replace it with an intact copy, or remove the file";
  if (!candidate.rejected.empty())
    return broken(candidate, candidate.rejected, candidate.remedy.empty() ? kReplace : candidate.remedy,
                  candidate.is_for_other_vendor ? PluginState::kNotHere : PluginState::kBroken);
  const ChildAnswer answer = ask_child([&] { return describe(registry, candidate); }, patience);
  if (!answer.failure.empty())
    return broken(candidate, formatted("was opened and tried: {}", answer.failure), "ask its author; until then remove the file",
                  PluginState::kBroken);
  ProbedFile probed;
  const Value lines = config::parse_value(answer.text);
  for (const Value& value : lines.as_list()) {
    const Dict& line = value.as_dict();
    const std::string is_broken = text_in(line, "broken"), not_here = text_in(line, "not_here");
    const PluginState state = !is_broken.empty()  ? PluginState::kBroken
                              : !not_here.empty() ? PluginState::kNotHere
                                                  : PluginState::kUsable;
    std::string next_step = text_in(line, "next_step");
    if (next_step.empty() && state == PluginState::kBroken) next_step = kReplace;
    if (!line.find("name")) return broken(candidate, is_broken + not_here, next_step, state);
    FoundPlugin found = promised(candidate).front();
    found.kind = text_in(line, "kind");
    found.name = text_in(line, "name");
    found.device = text_in(line, "device");
    found.version = text_in(line, "version");
    found.state = state;
    found.remark = state == PluginState::kUsable ? text_in(line, "remark") : without_file(is_broken + not_here, candidate.file);
    found.next_step = next_step;
    probed.plugins.push_back(std::move(found));
    if (const Value* priority = line.find("priority")) probed.priority = priority->as_int();
    probed.default_comm += text_in(line, "default_comm");
    probed.plugin_device += text_in(line, "plugin_device");
  }
  return probed;
}

}  // namespace gannet::doctor
