#include "doctor/plugin_info.h"

#include <gannet/error.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <sstream>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/table.h"
#include "base/text.h"
#include "config/parse.h"
#include "doctor/child.h"
#include "doctor/plugin_json.h"
#include "interfaces/host.h"
#include "interfaces/optimizer.h"
#include "plugin/plugin.h"
#include "plugin/schema.h"

namespace gannet::doctor {
namespace {

using plugin::Plugin;
using plugin::Registry;

constexpr std::chrono::seconds kPatience{60};

// An optimizer's capabilities, from an object with the default params. An accelerator's are known
// only once it has opened its device.
std::string capabilities_of(const Plugin& plugin) {
  if (plugin.kind() != GANNET_KIND_OPTIMIZER) return "";
  try {
    const Host host;
    Optimizer optimizer(plugin, plugin::parse_params(plugin, {}, {}), host);
    optimizer.describe({});
    std::vector<std::string> names;
    if (!optimizer.needs_whole_tensors()) names.push_back("elementwise");
    if (optimizer.needs_whole_tensors()) names.push_back("needs whole tensors");
    if (!optimizer.sums().empty()) names.push_back("needs sums");
    if (optimizer.has(GANNET_OPTIMIZER_OWNS_GRAD_REDUCTION)) names.push_back("reduces gradients itself");
    if (optimizer.uses_seed()) names.push_back("draws random numbers");
    if (optimizer.has_matrix_states()) names.push_back("keeps squares or low-rank factors");
    if (optimizer.has(GANNET_OPTIMIZER_USES_LOSS)) names.push_back("uses the loss");
    if (optimizer.perturbs()) names.push_back("perturbs parameters");
    if (optimizer.takes_second_gradients()) names.push_back("takes second gradients");
    if (optimizer.takes_lists()) names.push_back("takes several pieces in a call");
    if (optimizer.takes_device_numbers()) names.push_back("reads the step's numbers on its device");
    return join(names, ", ");
  } catch (const Error&) {
    return "depend on its params";
  }
}

// A plugin's text, made printable on a terminal.
std::string shown(const char* text) { return text ? printable(text) : ""; }

std::string default_text(const gannet_param_spec& spec) {
  if (spec.flags & GANNET_PARAM_REQUIRED) return "required";
  return spec.default_json ? shown(spec.default_json) : "not set";
}

std::string remarks(const gannet_param_spec& spec) {
  std::string text = shown(spec.doc);
  if (spec.flags & GANNET_PARAM_DYNAMIC) text += " [may change between steps]";
  if (spec.roles) {
    std::vector<std::string> roles;
    for (uint32_t i = 0; i < std::max(spec.length, 1u); ++i) roles.push_back(plugin::role_name(spec.roles[i]));
    text += formatted(" [role: {}]", join(roles, ", "));
  }
  if (spec.flags & GANNET_PARAM_NULLABLE) text += " [null: not set]";
  if (spec.flags & GANNET_PARAM_DEPRECATED) text += " [deprecated]";
  return text;
}

std::string info_of(const Plugin& found) {
  const auto& descriptor = *found.descriptor;
  std::ostringstream out;
  out << plugin::kind_name(found.kind()) << ' ' << found.name() << ' ' << found.version() << ": " << shown(descriptor.doc) << '\n'
      << "  device       " << or_any(found.device()) << '\n'
      << "  tier         " << tier_name(descriptor.tier) << '\n'
      << "  plugin ABI   " << descriptor.abi_major << '.' << descriptor.abi_minor << '\n';
  if (descriptor.fingerprint && *descriptor.fingerprint) out << "  fingerprint  " << shown(descriptor.fingerprint) << '\n';
  if (const auto capabilities = capabilities_of(found); !capabilities.empty()) out << "  capabilities " << capabilities << '\n';
  out << "  file         " << printable(found.file) << '\n' << "  hash         " << found.hash << "\n\n";
  if (descriptor.param_count == 0) {
    out << "  it takes no params\n";
    return out.str();
  }
  Table table({"  param", "type", "range", "default", "meaning"});
  for (const auto* spec : plugin::specs_of(descriptor))
    table.add({std::string("  ") + spec->name, plugin::type_text(*spec), plugin::range_text(*spec), default_text(*spec),
               remarks(*spec)});
  out << table.to_string();
  return out.str();
}

// A path has a slash, and begins with /, ./ or ../, ends with .so, or is not a "kind/name". A bare
// name is never looked up in the current folder.
bool is_path(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) return false;
  if (slash == 0 || text.starts_with("./") || text.starts_with("../") || text.ends_with(".so")) return true;
  const std::string first = lower(text.substr(0, slash));
  for (int kind = GANNET_KIND_ACCELERATOR; kind <= GANNET_KIND_COMM; ++kind)
    if (first == plugin::kind_name(static_cast<gannet_kind>(kind))) return false;
  return true;
}

// Looks up a name of any kind: "AdamW", "optimizer/adamw", "optimizer/adamw@cuda"; or a path.
std::vector<const Plugin*> look_up(Registry& registry, const std::string& text) {
  if (is_path(text)) return registry.open_file(text);
  std::vector<const Plugin*> found;
  std::vector<std::string> names;
  for (const auto& candidate : registry.candidates()) {
    if (!candidate.rejected.empty()) continue;
    for (const auto& provided : candidate.provides) {
      const std::string name = provided.substr(provided.find('/') + 1), plain = name.substr(0, name.find('@'));
      names.push_back(plain);
      const std::string wanted = lower(text);
      if (wanted != provided && wanted != name && wanted != plain && wanted != provided.substr(0, provided.find('@'))) continue;
      for (const Plugin* plugin : registry.open_file(candidate.file))
        if (lower(plugin->name()) == plain && std::find(found.begin(), found.end(), plugin) == found.end() &&
            (name == plain ? plugin->device().empty() : name == formatted("{}@{}", plain, lower(plugin->device()))))
          found.push_back(plugin);
    }
  }
  if (found.empty())
    throw Error(ErrorCode::kPlugin, formatted("there is no plugin '{}'{}", text, did_you_mean(lower(text), names)),
                formatted("`gannet plugins list -v` shows every plugin found, every place searched and every file rejected; a "
                          "file is named with a slash: ./{}",
                          text));
  return found;
}

// Runs in a child process: a file with code that ends the process must not end this one
// silently.
std::string info(const std::string& text, bool as_json) {
  Registry registry({});
  std::string all;
  List list;
  try {
    for (const Plugin* found : look_up(registry, text))
      if (as_json)
        list.push_back(plugin_json(*found));
      else
        all += (all.empty() ? "" : "\n") + info_of(*found);
    if (as_json) all = Value(std::move(list)).to_json() + '\n';
  } catch (const Error& error) {
    return Value(Dict{{"code", static_cast<int64_t>(error.code())}, {"error", error.message()}, {"next_step", error.next_step()}})
        .to_json();
  }
  return Value(Dict{{"text", all}}).to_json();
}

}  // namespace

void print_plugin_info(const std::string& text, bool as_json) {
  const ChildAnswer answer = ask_child([&] { return info(text, as_json); }, kPatience);
  if (!answer.failure.empty())
    throw Error(ErrorCode::kPluginFault, formatted("opening the plugin '{}': {}", printable(text), answer.failure),
                "`gannet plugins list -v` tries each file; ask its author");
  const Value said = config::parse_value(answer.text);
  if (!said.as_dict().find("error")) {
    std::cout << said.at("text").as_string();
    return;
  }
  throw Error(static_cast<ErrorCode>(said.at("code").as_int()), said.at("error").as_string(), said.at("next_step").as_string());
}

}  // namespace gannet::doctor
