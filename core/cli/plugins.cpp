// gannet plugins list [-v] | info NAME|PATH: what the loader finds, and what it thinks of it.
#include <gannet/error.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <utility>

#include "base/table.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/doctor/child.h"
#include "config/parse.h"
#include "plugin/plugin.h"
#include "plugin/schema.h"

namespace gannet::cli {
namespace {

using plugin::Candidate;
using plugin::Plugin;
using plugin::Registry;

constexpr std::chrono::seconds kPatience{60};  // a plugin asked for by name

const char* tier_name(uint32_t tier) { return tier == GANNET_TIER_PINNED ? "pinned" : "stable"; }
std::string or_any(const std::string& device) { return device.empty() ? "any" : device; }

// What a file provides: a row each, as a request can reach it.
struct Row {
  std::string kind, name, device, version, hash;
};

std::vector<Row> promised(const Candidate& candidate) {
  std::vector<Row> rows;
  for (const auto& provided : candidate.provides) {
    const auto kind_and_rest = split(provided, '/');
    const auto name_and_device = split(kind_and_rest.size() > 1 ? kind_and_rest[1] : "", '@');
    rows.push_back({kind_and_rest[0], name_and_device.empty() ? "" : name_and_device[0],
                    name_and_device.size() > 1 ? name_and_device[1] : "", "", ""});
  }
  return rows;
}

// In the child: opening a file runs its code.
std::string opened(Registry& registry, const Candidate& candidate) {
  List rows;
  try {
    for (const Plugin* found : registry.open_file(candidate.file))
      rows.push_back(Dict{{"kind", plugin::kind_name(found->kind())},
                          {"name", found->name()},
                          {"device", found->device()},
                          {"version", found->version()},
                          {"hash", found->hash}});
  } catch (const Error& error) {
    return Value(Dict{{"error", error.message()}}).to_json();
  }
  return Value(Dict{{"rows", std::move(rows)}}).to_json();
}

// Rows, or the reason why the file has none.
std::string look_inside(Registry& registry, const Candidate& candidate, std::chrono::seconds patience, std::vector<Row>& rows) {
  const Answer answer = ask_child([&] { return opened(registry, candidate); }, patience);
  if (!answer.failure.empty()) return "was opened: " + answer.failure;
  const Value said = config::parse_value(answer.text);
  if (const Value* error = said.as_dict().find("error")) return error->as_string();
  for (const Value& row : said.at("rows").as_list())
    rows.push_back({row.at("kind").as_string(), row.at("name").as_string(), row.at("device").as_string(),
                    row.at("version").as_string(), row.at("hash").as_string()});
  return "";
}

// One line for each row; a later file that provides the same is shadowed.
class Listing {
 public:
  explicit Listing(bool verbose)
      : verbose_(verbose),
        table_(verbose ? Cells{"kind", "name", "device", "version", "tier", "hash", "file"}
                       : Cells{"kind", "name", "device", "tier", "file"}) {}

  void add(const Candidate& candidate, const std::vector<Row>& rows) {
    for (const Row& row : rows) {
      const std::string what = row.kind + "/" + lower(row.name) + "@" + or_any(row.device);
      const auto [first, is_first] = first_.emplace(what, &candidate);
      std::string file = printable(candidate.file);
      if (!is_first) file += "  (not used: one above provides the same)";
      if (!is_first && candidate.is_own && !first->second->is_own)
        shadowed_.push_back(what + " of " + printable(first->second->file) + " stands before Gannet's own, " +
                            printable(candidate.file));
      table_.add(verbose_ ? Cells{row.kind, row.name, or_any(row.device), row.version, tier_name(candidate.tier), row.hash, file}
                          : Cells{row.kind, row.name, or_any(row.device), tier_name(candidate.tier), file});
    }
  }
  void print() const {
    std::cout << table_.to_string();
    for (const auto& line : shadowed_) std::cout << "note: " << line << '\n';
  }

 private:
  using Cells = std::vector<std::string>;

  bool verbose_;
  Table table_;
  std::map<std::string, const Candidate*> first_;
  std::vector<std::string> shadowed_;
};

void list(bool verbose, std::chrono::seconds patience) {
  Registry registry({});
  Listing listing(verbose);
  std::vector<std::pair<std::string, std::string>> rejected;
  for (const auto& candidate : registry.candidates()) {
    std::vector<Row> rows = verbose ? std::vector<Row>() : promised(candidate);
    std::string reason = candidate.rejected;
    if (reason.empty() && verbose) reason = look_inside(registry, candidate, patience, rows);
    if (reason.empty())
      listing.add(candidate, rows);
    else
      rejected.emplace_back(printable(candidate.file), reason + (candidate.remedy.empty() ? "" : "; " + candidate.remedy));
  }
  listing.print();
  if (!verbose) {
    if (!rejected.empty()) std::cout << rejected.size() << " file(s) rejected: `gannet plugins list -v` says why\n";
    return;
  }
  std::cout << "\nthis host's fingerprint, which pinned plugins must match: " << plugin::host_fingerprint()
            << "\n\nsearched, in this order:\n";
  for (const auto& place : registry.searched()) std::cout << "  " << printable(place) << '\n';
  std::cout << "\nrejected:" << (rejected.empty() ? " none" : "") << '\n';
  for (const auto& [file, reason] : rejected) std::cout << "  " << file << "\n    " << reason << '\n';
}

// ---- info --------------------------------------------------------------------------------------------------------------

std::string capabilities_of(const gannet_descriptor& descriptor) {
  std::vector<std::string> names;
  if (descriptor.kind != GANNET_KIND_OPTIMIZER) return "";  // an accelerator's are known only once it has opened its device
  const auto bits = static_cast<const gannet_optimizer_api*>(descriptor.api)->capabilities;
  if (bits & GANNET_OPTIMIZER_ELEMENTWISE) names.push_back("elementwise");
  if (bits & GANNET_OPTIMIZER_NEEDS_TENSOR_SUMS) names.push_back("needs tensor sums");
  if (bits & GANNET_OPTIMIZER_NEEDS_WHOLE_TENSOR) names.push_back("needs whole tensors");
  if (bits & GANNET_OPTIMIZER_OWNS_GRAD_REDUCTION) names.push_back("reduces gradients itself");
  return names.empty() ? "none" : join(names, ", ");
}

// A plugin's own words, as a terminal may show them.
std::string shown(const char* text) { return text ? printable(text) : ""; }

std::string default_text(const gannet_param_spec& spec) {
  if (spec.flags & GANNET_PARAM_REQUIRED) return "required";
  return spec.default_json ? shown(spec.default_json) : "not set";
}

std::string remarks(const gannet_param_spec& spec) {
  std::string text = shown(spec.doc);
  if (spec.flags & GANNET_PARAM_DYNAMIC) text += " [may change between steps]";
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
  if (const auto capabilities = capabilities_of(descriptor); !capabilities.empty())
    out << "  capabilities " << capabilities << '\n';
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

// A path says that it is one: it begins with / or ., or has a slash and is no "kind/name". A bare name is never looked for in the
// current folder, whatever lies there.
bool is_path(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) return false;
  if (slash == 0 || text.starts_with("./") || text.starts_with("../") || text.ends_with(".so")) return true;
  const std::string first = lower(text.substr(0, slash));
  for (int kind = GANNET_KIND_ACCELERATOR; kind <= GANNET_KIND_COMM; ++kind)
    if (first == plugin::kind_name(static_cast<gannet_kind>(kind))) return false;
  return true;
}

// A name of any kind: "AdamW", "optimizer/adamw", "optimizer/adamw@cuda"; or a path.
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
            (name == plain ? plugin->device().empty() : name == plain + "@" + lower(plugin->device())))
          found.push_back(plugin);
    }
  }
  if (found.empty())
    throw Error(
        ErrorCode::kPlugin, "there is no plugin '" + text + "'" + did_you_mean(lower(text), names),
        "`gannet plugins list -v` shows every plugin found, every place searched and every file rejected; a file is named "
        "with a slash: ./" +
            text);
  return found;
}

// In a child too: a file whose code ends the process must not end this one in silence.
std::string info(const std::string& text) {
  Registry registry({});
  std::string all;
  try {
    for (const Plugin* found : look_up(registry, text)) all += (all.empty() ? "" : "\n") + info_of(*found);
  } catch (const Error& error) {
    return Value(Dict{{"code", static_cast<int64_t>(error.code())}, {"error", error.message()}, {"next_step", error.next_step()}})
        .to_json();
  }
  return Value(Dict{{"text", all}}).to_json();
}

void print_info(const std::string& text, std::chrono::seconds patience) {
  const Answer answer = ask_child([&] { return info(text); }, patience);
  if (!answer.failure.empty())
    throw Error(ErrorCode::kPluginFault, "opening the plugin '" + printable(text) + "': " + answer.failure,
                "`gannet plugins list -v` tries each file; ask its author");
  const Value said = config::parse_value(answer.text);
  if (!said.as_dict().find("error")) {
    std::cout << said.at("text").as_string();
    return;
  }
  throw Error(static_cast<ErrorCode>(said.at("code").as_int()), said.at("error").as_string(), said.at("next_step").as_string());
}

}  // namespace

void add_plugins(CLI::App& app) {
  auto* plugins = app.add_subcommand("plugins", "What the plugin loader finds");
  plugins->require_subcommand(1);

  auto* listing = plugins->add_subcommand("list", "Every plugin found, in search order");
  auto verbose = std::make_shared<bool>(false);
  listing->add_flag("-v,--verbose", *verbose, "open each: versions and hashes; also the places searched and the files rejected");
  auto patience = std::make_shared<int>(10);
  listing->add_option("--timeout", *patience, "seconds that opening a file may take, in a process of its own (10)")
      ->check(CLI::Range(1, 3600))
      ->type_name("SECONDS");
  listing->callback([verbose, patience] { list(*verbose, std::chrono::seconds(*patience)); });

  auto* information = plugins->add_subcommand("info", "A plugin's documentation, parameters and capabilities");
  auto name = std::make_shared<std::string>();
  information->add_option("plugin", *name, "a name (AdamW, optimizer/adamw@cpu), or a file's path with a slash in it (./lion.so)")
      ->required();
  information->callback([name] { print_info(*name, kPatience); });
}

}  // namespace gannet::cli
