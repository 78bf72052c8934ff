// gannet plugins list [-v]: the files that the loader finds, and its verdict on each. `info` is in
// plugin_info.cpp; `check`, `new` and `trust` are in kit_commands.cpp.
#include <gannet/error.h>

#include <chrono>
#include <iostream>
#include <map>
#include <memory>
#include <utility>

#include "base/format.h"
#include "base/table.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/kit_commands.h"
#include "config/parse.h"
#include "doctor/child.h"
#include "doctor/plugin_info.h"
#include "plugin/plugin.h"

namespace gannet::cli {
namespace {

using plugin::Candidate;
using plugin::Plugin;
using plugin::Registry;

// One plugin that a file provides, under the name used to request it.
struct ListedPlugin {
  std::string kind, name, device, version, hash;
};

std::vector<ListedPlugin> promised(const Candidate& candidate) {
  std::vector<ListedPlugin> rows;
  for (const auto& provided : candidate.provides) {
    const auto kind_and_rest = split(provided, '/');
    const auto name_and_device = split(kind_and_rest.size() > 1 ? kind_and_rest[1] : "", '@');
    rows.push_back({kind_and_rest[0], name_and_device.empty() ? "" : name_and_device[0],
                    name_and_device.size() > 1 ? name_and_device[1] : "", "", ""});
  }
  return rows;
}

// Runs in a child process, because opening a file runs its code.
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

// Adds the file's rows, or returns the reason why there are none.
std::string look_inside(Registry& registry, const Candidate& candidate, std::chrono::seconds patience,
                        std::vector<ListedPlugin>& rows) {
  const doctor::ChildAnswer answer = doctor::ask_child([&] { return opened(registry, candidate); }, patience);
  if (!answer.failure.empty()) return formatted("was opened: {}", answer.failure);
  const Value said = config::parse_value(answer.text);
  if (const Value* error = said.as_dict().find("error")) return error->as_string();
  for (const Value& row : said.at("rows").as_list())
    rows.push_back({row.at("kind").as_string(), row.at("name").as_string(), row.at("device").as_string(),
                    row.at("version").as_string(), row.at("hash").as_string()});
  return "";
}

// Lists one plugin per line. If a file above provides the same plugin, the line marks this one as
// not used.
class PluginListing {
 public:
  explicit PluginListing(bool verbose)
      : verbose_(verbose),
        table_(verbose ? Cells{"kind", "name", "device", "version", "tier", "hash", "file"}
                       : Cells{"kind", "name", "device", "tier", "file"}) {}

  void add(const Candidate& candidate, const std::vector<ListedPlugin>& rows) {
    for (const ListedPlugin& row : rows) {
      const std::string what = formatted("{}/{}@{}", row.kind, lower(row.name), doctor::or_any(row.device));
      const auto [first, is_first] = first_.emplace(what, &candidate);
      std::string file = printable(candidate.file);
      if (!is_first) file += "  (not used: a file above provides the same)";
      if (candidate.is_for_other_vendor) file += formatted("  (for another LibTorch: {})", candidate.vendor);
      if (!is_first && candidate.is_own && !first->second->is_own)
        shadowed_.push_back(formatted("{} of {} takes precedence over Gannet's own, {}", what, printable(first->second->file),
                                      printable(candidate.file)));
      table_.add(verbose_ ? Cells{row.kind, row.name, doctor::or_any(row.device), row.version, doctor::tier_name(candidate.tier),
                                  row.hash, file}
                          : Cells{row.kind, row.name, doctor::or_any(row.device), doctor::tier_name(candidate.tier), file});
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
  PluginListing listing(verbose);
  std::vector<std::pair<std::string, std::string>> rejected;
  for (const auto& candidate : registry.candidates()) {
    std::vector<ListedPlugin> rows = verbose ? std::vector<ListedPlugin>() : promised(candidate);
    std::string reason = candidate.rejected;
    if (reason.empty() && verbose) reason = look_inside(registry, candidate, patience, rows);
    if (reason.empty() || (!verbose && candidate.is_for_other_vendor))
      listing.add(candidate, rows);
    else
      rejected.emplace_back(printable(candidate.file),
                            reason + (candidate.remedy.empty() ? "" : formatted("; {}", candidate.remedy)));
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

}  // namespace

void add_plugins(CLI::App& app) {
  auto* plugins = app.add_subcommand("plugins", "List, describe, write and check plugins");
  plugins->require_subcommand(1);

  auto* listing = plugins->add_subcommand("list", "List every plugin found, in search order");
  auto verbose = std::make_shared<bool>(false);
  listing->add_flag("-v,--verbose", *verbose, "open each: print versions and hashes, the places searched and the files rejected");
  auto patience = std::make_shared<int>(10);
  listing->add_option("--timeout", *patience, "time limit for opening a file in a child process, in seconds (10)")
      ->check(CLI::Range(1, 3600))
      ->type_name("SECONDS");
  listing->callback([verbose, patience] { list(*verbose, std::chrono::seconds(*patience)); });

  auto* information = plugins->add_subcommand("info", "Print a plugin's documentation, parameters and capabilities");
  auto name = std::make_shared<std::string>();
  information->add_option("plugin", *name, "a name (AdamW, optimizer/adamw@cpu), or a file's path with a slash in it (./lion.so)")
      ->required();
  auto as_json = std::make_shared<bool>(false);
  information->add_flag("--json", *as_json, "print a JSON list");
  information->callback([name, as_json] { doctor::print_plugin_info(*name, *as_json); });

  add_kit_commands(*plugins, {});  // described here, run by gannet-kit
}

}  // namespace gannet::cli
