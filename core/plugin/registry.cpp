#include <gannet/error.h>
#include <gannet/log.h>

#include <algorithm>
#include <filesystem>

#include "base/text.h"
#include "plugin/note.h"
#include "plugin/open.h"
#include "plugin/plugin.h"
#include "plugin/search.h"

namespace gannet::plugin {
namespace {

// A name of a note, cut apart: "optimizer/adam@cpu".
struct Provided {
  explicit Provided(const std::string& text) {
    const size_t slash = std::min(text.find('/'), text.size()), at = std::min(text.find('@'), text.size());
    kind = text.substr(0, slash);
    if (slash < at) name = text.substr(slash + 1, at - slash - 1);
    if (at < text.size()) device = text.substr(at + 1);
  }
  std::string kind, name, device;
};

struct Wanted {
  std::string kind, name, device;  // lower case; no device: any

  bool met_by(const std::string& provided_text) const {
    const Provided provided(provided_text);
    return provided.kind == kind && provided.name == name &&
           (device.empty() || provided.device.empty() || provided.device == device);
  }
  bool met_by(const Candidate& candidate) const {
    return std::any_of(candidate.provides.begin(), candidate.provides.end(), [&](const auto& text) { return met_by(text); });
  }
  // "optimizer plugin 'adamw' for device 'cpu'"
  std::string to_string(const std::string& as_written) const {
    return kind + " plugin '" + as_written + "'" + (device.empty() ? "" : " for device '" + device + "'");
  }
};

std::string searched_text(const std::vector<std::string>& places) { return "\n  searched: " + join(places, "\n            "); }

// A folder of the user's may hold many files that are no plugins: the first few say enough.
std::string rejected_text(const std::vector<Candidate>& candidates) {
  constexpr size_t kShown = 12;
  std::string text;
  size_t count = 0;
  for (const auto& candidate : candidates)
    if (!candidate.rejected.empty() && ++count <= kShown) text += "\n  rejected: " + candidate.file + " " + candidate.rejected;
  if (count > kShown) text += "\n  and " + std::to_string(count - kShown) + " more";
  return text;
}

}  // namespace

Registry::Registry(Options options) {
  const auto found = search(options.explicit_paths);
  searched_ = found.places;
  for (const auto& file : found.files) candidates_.push_back(read_candidate(file));
  // A file that the config names is one that the user counts on.
  for (const auto& path : options.explicit_paths)
    for (const auto& candidate : candidates_) {
      std::error_code failed;
      if (!candidate.rejected.empty() && std::filesystem::equivalent(path, candidate.file, failed))
        throw Error(ErrorCode::kPlugin, "plugin " + candidate.file + ", named by the config, " + candidate.rejected,
                    "`gannet plugins list -v` shows every plugin found and every file rejected");
    }
}

std::vector<const Plugin*> Registry::open_file(const std::string& path) {
  std::error_code failed;
  const auto real = std::filesystem::canonical(path, failed);
  if (failed) throw Error(ErrorCode::kPlugin, "there is no plugin file '" + path + "': " + failed.message());
  const auto& plugins = open(read_candidate(real.string()));
  for (const auto* plugin : plugins)
    if (std::find(opened_.begin(), opened_.end(), plugin) == opened_.end()) opened_.push_back(plugin);
  return plugins;
}

const Plugin* Registry::find(gannet_kind kind, const std::string& name, const std::string& device) {
  const Wanted wanted{kind_name(kind), lower(name), lower(device)};
  const Candidate* passed_over = nullptr;
  for (const auto& candidate : candidates_) {
    if (!wanted.met_by(candidate)) continue;
    if (!candidate.rejected.empty()) {
      if (!passed_over) passed_over = &candidate;
      continue;
    }
    if (passed_over)
      log_warning(wanted.to_string(name) + ": " + passed_over->file + " comes first but " + passed_over->rejected + "; using " +
                  candidate.file);
    const Plugin* any_device = nullptr;
    for (const auto* plugin : open_file(candidate.file)) {
      if (!wanted.met_by(provided_name(*plugin->descriptor))) continue;
      if (lower(plugin->device()) == wanted.device) return plugin;
      if (!any_device) any_device = plugin;
    }
    return any_device;
  }
  if (passed_over)
    throw Error(ErrorCode::kPlugin, wanted.to_string(name) + ": " + passed_over->file + " " + passed_over->rejected,
                "rebuild it against this Gannet, or put another one into GANNET_PLUGIN_PATH");
  return nullptr;
}

const Plugin& Registry::require(gannet_kind kind, const std::string& name, const std::string& device) {
  if (const Plugin* plugin = find(kind, name, device)) return *plugin;
  const Wanted wanted{kind_name(kind), lower(name), lower(device)};
  std::vector<std::string> names, other_devices;
  for (const auto& candidate : candidates_) {
    if (!candidate.rejected.empty()) continue;
    for (const auto& text : candidate.provides) {
      const Provided provided(text);
      if (provided.kind != wanted.kind) continue;
      if (provided.name == wanted.name)
        other_devices.push_back(provided.device);
      else if (wanted.device.empty() || provided.device.empty() || provided.device == wanted.device)
        names.push_back(provided.name);
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::string what = "there is no " + wanted.to_string(name) + did_you_mean(name, names);
  if (!other_devices.empty()) what += "; there is one for " + join(other_devices, ", ");
  what += "\n  found: " + (names.empty() ? "no other " + wanted.kind + " plugin" : join(names, ", "));
  throw Error(ErrorCode::kPlugin, what + searched_text(searched_) + rejected_text(candidates_),
              "correct the type, or name the plugin's file or folder in GANNET_PLUGIN_PATH or in the config's \"plugins\": "
              "{\"path\": [...]}");
}

}  // namespace gannet::plugin
