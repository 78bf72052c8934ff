#include <gannet/error.h>
#include <gannet/log.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <set>

#include "base/format.h"
#include "base/text.h"
#include "plugin/exposure.h"
#include "plugin/note.h"
#include "plugin/open.h"
#include "plugin/plugin.h"
#include "plugin/search.h"
#include "plugin/trust.h"

namespace gannet::plugin {
namespace {

namespace fs = std::filesystem;

// The parsed name of a note's entry: "optimizer/adam@cpu".
struct ProvidedName {
  explicit ProvidedName(const std::string& text) {
    const size_t slash = std::min(text.find('/'), text.size()), at = std::min(text.find('@'), text.size());
    kind = text.substr(0, slash);
    if (slash < at) name = text.substr(slash + 1, at - slash - 1);
    if (at < text.size()) device = text.substr(at + 1);
  }
  std::string kind, name, device;
};

struct RequestedPlugin {
  std::string kind, name, device;  // in lower case; device "" means any

  bool met_by(const std::string& provided_text) const {
    const ProvidedName provided(provided_text);
    return provided.kind == kind && provided.name == name &&
           (device.empty() || provided.device.empty() || provided.device == device);
  }
  bool met_by(const Candidate& candidate) const {
    return std::any_of(candidate.provides.begin(), candidate.provides.end(), [&](const auto& text) { return met_by(text); });
  }
  // Returns "optimizer plugin 'adamw' for device 'cpu'".
  std::string to_string(const std::string& as_written) const {
    return formatted("{} plugin '{}'{}", kind, as_written, device.empty() ? "" : formatted(" for device '{}'", device));
  }
};

std::string searched_text(const std::vector<std::string>& places) {
  return formatted("\n  searched: {}", join(places, "\n            "));
}

// Lists the rejected files. A user's folder may hold many files that are not plugins, so only the
// first few are shown.
std::string rejected_text(const std::vector<Candidate>& candidates) {
  constexpr size_t kShown = 12;
  std::string text;
  size_t count = 0;
  for (const auto& candidate : candidates)
    if (!candidate.rejected.empty() && ++count <= kShown)
      text += formatted("\n  rejected: {} {}", printable(candidate.file), candidate.rejected);
  if (count > kShown) text += formatted("\n  and {} more", count - kShown);
  return text;
}

// The canonical paths of the entries of "allow". An entry is a file, or a folder, which includes
// every file below it. An entry that does not exist is an error.
std::vector<std::string> canonical_of(const std::vector<std::string>& allowed) {
  std::vector<std::string> result;
  for (const auto& path : allowed) {
    std::error_code failed;
    const auto real = fs::canonical(path, failed);
    if (failed)
      throw Error(ErrorCode::kPlugin,
                  formatted("there is no file or folder '{}', named by \"plugins\": {{\"allow\": [...]}}", path),
                  "correct it; a relative path starts at the current directory");
    result.push_back(real.string());
  }
  return result;
}

bool is_at_or_below(const fs::path& file, const fs::path& place) {
  return std::mismatch(place.begin(), place.end(), file.begin(), file.end()).first == place.end();
}

// Warns only once per process, because several registries are created: by an engine, its world and
// each block of the config.
void warn_once(const std::string& text) {
  static auto& mutex = *new std::mutex;
  static auto& said = *new std::set<std::string>;
  {
    const std::lock_guard lock(mutex);
    if (!said.insert(text).second) return;
  }
  log_warning(text);
}

}  // namespace

Candidate Registry::judge(const std::string& file, const std::string& way) const {
  Candidate candidate = read_candidate(file);
  if (!candidate.rejected.empty() ||
      std::any_of(allowed_.begin(), allowed_.end(), [&](const auto& place) { return is_at_or_below(file, place); }))
    return candidate;
  if (const std::string reason = exposure(way); !reason.empty()) {
    candidate.rejected = formatted("is not opened: {}", printable(reason));
    candidate.remedy =
        formatted("take the right away (`chmod o-w`), or trust it by name in the config: \"plugins\": {{\"allow\": [\"{}\"]}}",
                  printable(file));
  }
  return candidate;
}

Registry::Registry(Options options) {
  const auto found = search(options.explicit_paths);
  searched_ = found.places;
  allowed_ = canonical_of(options.allowed_paths);
  if (!options.trusted.empty()) trust_ = std::make_shared<const TrustList>(TrustList::read(options.trusted));
  for (size_t i = 0; i < found.files.size(); ++i) {
    Candidate& candidate = candidates_.emplace_back(judge(found.files[i], found.ways[i]));
    const std::string folder = fs::path(candidate.file).parent_path();
    candidate.is_own = std::find(found.own_folders.begin(), found.own_folders.end(), folder) != found.own_folders.end();
  }
  // A file that the config names must be usable.
  for (const auto& path : options.explicit_paths)
    for (const auto& candidate : candidates_) {
      std::error_code failed;
      if (!candidate.rejected.empty() && fs::equivalent(path, candidate.file, failed))
        throw Error(ErrorCode::kPlugin,
                    formatted("plugin {}, named by the config, {}", printable(candidate.file), candidate.rejected),
                    candidate.remedy.empty() ? "`gannet plugins list -v` shows every plugin found and every file rejected"
                                             : candidate.remedy);
    }
}

std::vector<const Plugin*> Registry::open_file(const std::string& path) {
  std::error_code failed;
  const auto real = fs::canonical(path, failed);
  if (failed) throw Error(ErrorCode::kPlugin, formatted("there is no plugin file '{}': {}", printable(path), failed.message()));
  const auto found = std::find_if(candidates_.begin(), candidates_.end(), [&](const auto& known) { return known.file == real; });
  return open_candidate(found != candidates_.end() ? *found : judge(real.string(), path));
}

std::vector<const Plugin*> Registry::open_candidate(const Candidate& candidate) {
  const auto& plugins = open(candidate, trust_.get());
  for (const auto* plugin : plugins)
    if (std::find(opened_.begin(), opened_.end(), plugin) == opened_.end()) opened_.push_back(plugin);
  return plugins;
}

void Registry::require_trust(const Plugin& plugin) const {
  Candidate candidate;
  candidate.file = plugin.file;
  if (trust_) open(candidate, trust_.get());  // already open
}

const Plugin* Registry::find(gannet_kind kind, const std::string& name, const std::string& device) {
  const RequestedPlugin wanted{kind_name(kind), lower(name), lower(device)};
  const Candidate* passed_over = nullptr;
  for (const auto& candidate : candidates_) {
    if (!wanted.met_by(candidate)) continue;
    if (!candidate.rejected.empty()) {
      if (!passed_over) passed_over = &candidate;
      continue;
    }
    if (passed_over)
      log_warning(formatted("{}: {} comes first but {}; using {}", wanted.to_string(name), printable(passed_over->file),
                            passed_over->rejected, printable(candidate.file)));
    for (const auto& other : candidates_)
      if (&other != &candidate && !candidate.is_own && other.rejected.empty() && wanted.met_by(other))
        warn_once(formatted("{} is taken from {}, which takes precedence over {}{}", wanted.to_string(name),
                            printable(candidate.file), other.is_own ? "Gannet's own, " : "the one of the same name in ",
                            printable(other.file)));
    // A plugin made for this device is preferred to one for any device.
    const Plugin* any_device = nullptr;
    for (const auto* plugin : open_candidate(candidate)) {
      if (!wanted.met_by(provided_name(*plugin->descriptor))) continue;
      if (lower(plugin->device()) == wanted.device) return plugin;
      if (!any_device) any_device = plugin;
    }
    return any_device;
  }
  if (passed_over)
    throw Error(ErrorCode::kPlugin,
                formatted("{}: {} {}", wanted.to_string(name), printable(passed_over->file), passed_over->rejected),
                passed_over->remedy.empty() ? "rebuild it against this Gannet, or put another one into GANNET_PLUGIN_PATH"
                                            : passed_over->remedy);
  return nullptr;
}

std::vector<const Plugin*> Registry::accelerators_best_first() {
  std::set<std::string> names;
  for (const auto& candidate : candidates_) {
    if (candidate.is_for_other_vendor) continue;  // not worth a warning: it is no accident that such a file is installed
    for (const auto& text : candidate.provides)
      if (const ProvidedName provided(text); provided.kind == kind_name(GANNET_KIND_ACCELERATOR)) names.insert(provided.name);
  }
  std::vector<const Plugin*> found;
  for (const auto& name : names) {
    try {
      if (const Plugin* plugin = find(GANNET_KIND_ACCELERATOR, name); plugin && priority_of(*plugin) >= 0)
        found.push_back(plugin);
    } catch (const Error& error) {
      warn_once(formatted("\"auto\" passes over the accelerator {}: {}", name, error.message()));
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const auto* a, const auto* b) { return priority_of(*a) > priority_of(*b); });
  return found;
}

const Plugin& Registry::require(gannet_kind kind, const std::string& name, const std::string& device) {
  if (const Plugin* plugin = find(kind, name, device)) return *plugin;
  const RequestedPlugin wanted{kind_name(kind), lower(name), lower(device)};
  std::vector<std::string> names, other_devices;
  for (const auto& candidate : candidates_) {
    if (!candidate.rejected.empty()) continue;
    for (const auto& text : candidate.provides) {
      const ProvidedName provided(text);
      if (provided.kind != wanted.kind) continue;
      if (provided.name == wanted.name)
        other_devices.push_back(provided.device);
      else if (wanted.device.empty() || provided.device.empty() || provided.device == wanted.device)
        names.push_back(provided.name);
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::string what = formatted("there is no {}{}", wanted.to_string(name), did_you_mean(name, names));
  if (!other_devices.empty()) what += formatted("; there is one for {}", join(other_devices, ", "));
  what += formatted("\n  found: {}", names.empty() ? formatted("no other {} plugin", wanted.kind) : join(names, ", "));
  throw Error(ErrorCode::kPlugin, what + searched_text(searched_) + rejected_text(candidates_),
              "correct the type, or name the plugin's file or folder in GANNET_PLUGIN_PATH or in the config's \"plugins\": "
              "{\"path\": [...]}");
}

}  // namespace gannet::plugin
