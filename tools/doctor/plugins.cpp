// Reports every plugin that the search finds, usable or not, and which of them "auto" would pick.
#include <gannet/error.h>

#include <array>
#include <filesystem>
#include <map>
#include <set>

#include "base/format.h"
#include "base/text.h"
#include "doctor/diagnosis.h"
#include "doctor/probe.h"
#include "plugin/note.h"

namespace gannet::doctor {
namespace {

using plugin::Candidate;

std::string title_of(const FoundPlugin& found) {
  if (found.name.empty()) return formatted("plugin file {}", std::filesystem::path(found.file).filename().string());
  return formatted("{} plugin {}{}", found.kind, found.name, found.device.empty() ? "" : formatted(" ({})", found.device));
}

class PluginInspection {
 public:
  PluginInspection(Diagnosis& diagnosis, plugin::Registry& registry, std::chrono::seconds patience)
      : diagnosis_(diagnosis), registry_(registry), patience_(patience) {}

  void run() {
    for (const Candidate& candidate : registry_.candidates()) look_at(candidate);
    tell_devices_that_are_not_here();
    tell_findings();
    tell_what_auto_picks();
  }

 private:
  void look_at(const Candidate& candidate) {
    if (plugin::is_foreign(candidate)) {
      diagnosis_.note(formatted("{} {}", printable(candidate.file), candidate.rejected),
                      "no action is needed; a folder that holds only plugins is searched faster");
      return;
    }
    ProbedFile probed = probe(registry_, candidate, patience_);
    for (FoundPlugin& found : probed.plugins) {
      const std::string key = formatted("{}/{}@{}", found.kind, lower(found.name), lower(found.device));
      if (!found.name.empty() && found.state == PluginState::kUsable) {
        const auto [first, is_first] = first_.emplace(key, PluginProvider{found.file, candidate.is_own});
        if (!is_first) found.remark = formatted("not used: {} provides the same and comes first", first->second.file);
        if (!is_first && candidate.is_own && !first->second.is_own)
          diagnosis_.note(formatted("{} is taken from {}, which takes precedence over Gannet's own, {}", title_of(found),
                                    first->second.file, found.file),
                          "if this is not intended, give it another name or remove it from the folder");
      }
      if (found.kind == "accelerator" && found.state == PluginState::kUsable) {
        comms_.emplace(lower(found.name), probed.default_comm);
        if (probed.priority >= 0) best_first_.emplace(-probed.priority, lower(found.name));
      }
      diagnosis_.plugins.push_back(std::move(found));
    }
  }

  bool is_usable(const std::string& kind, const std::string& name) const {
    for (const FoundPlugin& found : diagnosis_.plugins)
      if (found.kind == kind && lower(found.name) == name && found.state == PluginState::kUsable) return true;
    return false;
  }

  // A plugin for a device is as usable as the device: the engine requests it only if that
  // accelerator was opened.
  void tell_devices_that_are_not_here() {
    for (FoundPlugin& found : diagnosis_.plugins) {
      const std::string device = lower(found.device);
      if (found.kind == "accelerator" || found.state != PluginState::kUsable || device.empty() ||
          is_usable("accelerator", device))
        continue;
      found.state = PluginState::kNotHere;
      found.remark = formatted("waits for the accelerator {}", device);
    }
  }

  void tell_findings() {
    std::set<std::string> told;  // a file is reported once, even if it provides several plugins
    for (const FoundPlugin& found : diagnosis_.plugins) {
      const bool is_accelerator = found.kind == "accelerator" && found.state == PluginState::kNotHere;
      if (found.state == PluginState::kBroken) {
        if (told.insert(found.file + found.remark).second)
          diagnosis_.problem(formatted("{} is broken: {} {}", title_of(found), found.file, found.remark), found.next_step);
      } else if (is_accelerator || (found.state == PluginState::kNotHere && !found.remark.starts_with("waits for"))) {
        diagnosis_.note(formatted("{} is not usable here: {}", title_of(found), found.remark), found.next_step);
      }
    }
    for (const auto& [kind, name, what] :
         {std::array{"accelerator", "cpu", "to train without a GPU"}, std::array{"comm", "local", "for a run of one process"}})
      if (!is_usable(kind, name))
        diagnosis_.problem(
            formatted("{} plugin {} was not found in a usable state; it is needed {}", kind, name, what),
            formatted(
                "install Gannet's plugins next to its core library, or name their folder in GANNET_PLUGIN_PATH; searched: {}",
                join(registry_.searched(), ", ")));
  }

  void tell_what_auto_picks() {
    Section& section = diagnosis_.section("what \"auto\" picks");
    std::string why;
    for (const FoundPlugin& found : diagnosis_.plugins)
      if (found.kind == "accelerator" && found.state != PluginState::kUsable)
        why += formatted("{}{}: {}", why.empty() ? "" : "; ", found.name, found.remark.substr(0, found.remark.find("; ")));
    if (best_first_.empty()) return tell_pick(section, "", why.empty() ? "no plugin of an accelerator was found" : why);
    const auto& [priority, best] = *best_first_.begin();
    why += formatted("{}{} is usable, with priority {}", why.empty() ? "" : "; ", best, -priority);
    tell_pick(section, best, why);
  }

  void tell_pick(Section& section, const std::string& accelerator, const std::string& why) {
    section.add("accelerator", formatted("{} ({})", accelerator.empty() ? "none" : accelerator, why), accelerator);
    if (accelerator.empty()) return;
    const auto comm = comms_.find(accelerator);
    const std::string name = comm == comms_.end() || comm->second.empty() ? "gloo" : comm->second;
    const bool is_there = is_usable("comm", lower(name));
    section.add("comm", formatted("local for one process, {} for several{}", name, is_there ? "" : ", which is not usable here"),
                name);
    if (!is_there)
      diagnosis_.note(
          formatted("runs of several processes on the accelerator {} ask for the comm plugin {}, which is not usable here",
                    accelerator, name),
          "train in one process, or name another in the config: \"comm\": {\"type\": ...}");
  }

  struct PluginProvider {
    std::string file;
    bool is_own;
  };

  Diagnosis& diagnosis_;
  plugin::Registry& registry_;
  std::chrono::seconds patience_;
  std::map<std::string, PluginProvider> first_;           // request -> the file that provides the plugin
  std::map<std::string, std::string> comms_;              // usable accelerator -> its default comm
  std::set<std::pair<int64_t, std::string>> best_first_;  // usable accelerators that "auto" may pick: (-priority, name)
};

}  // namespace

void look_at_plugins(Diagnosis& diagnosis, std::chrono::seconds patience) {
  plugin::Registry registry({});
  PluginInspection(diagnosis, registry, patience).run();
  Section& section = diagnosis.section("plugins were searched in");
  int count = 0;
  for (const std::string& place : registry.searched()) section.add(std::to_string(++count), printable(place));
}

}  // namespace gannet::doctor
