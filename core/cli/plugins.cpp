// gannet plugins list [-v] | info NAME|PATH: what the loader finds, and what it thinks of it.
#include <gannet/error.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>
#include <utility>

#include "base/table.h"
#include "base/text.h"
#include "cli/commands.h"
#include "plugin/plugin.h"
#include "plugin/schema.h"

namespace gannet::cli {
namespace {

using plugin::Candidate;
using plugin::Plugin;
using plugin::Registry;

const char* tier_name(uint32_t tier) { return tier == GANNET_TIER_PINNED ? "pinned" : "stable"; }
std::string or_any(const std::string& device) { return device.empty() ? "any" : device; }

// A row for each (kind, name, device) that a request can reach; a later file that provides the same is shadowed.
class Listing {
 public:
  explicit Listing(bool opened)
      : opened_(opened),
        table_(opened ? Row{"kind", "name", "device", "version", "tier", "hash", "file"}
                      : Row{"kind", "name", "device", "tier", "file"}) {}

  void add(Registry& registry, const Candidate& candidate) {
    if (!opened_) {
      for (const auto& provided : candidate.provides) {
        const auto kind_and_rest = split(provided, '/');
        const auto name_and_device = split(kind_and_rest.size() > 1 ? kind_and_rest[1] : "", '@');
        add_row({kind_and_rest[0], name_and_device.empty() ? "" : name_and_device[0],
                 or_any(name_and_device.size() > 1 ? name_and_device[1] : ""), tier_name(candidate.tier), candidate.file});
      }
      return;
    }
    for (const Plugin* found : registry.open_file(candidate.file))
      add_row({plugin::kind_name(found->kind()), found->name(), or_any(found->device()), found->version(),
               tier_name(candidate.tier), found->hash, found->file});
  }
  void print() const { std::cout << table_.to_string(); }

 private:
  using Row = std::vector<std::string>;
  void add_row(Row row) {
    if (!names_.insert(row[0] + "/" + lower(row[1]) + "@" + row[2]).second)
      row.back() += "  (not used: one above provides the same)";
    table_.add(std::move(row));
  }

  bool opened_;
  Table table_;
  std::set<std::string> names_;
};

void list(bool verbose) {
  Registry registry({});
  Listing listing(verbose);
  std::vector<std::pair<std::string, std::string>> rejected;
  for (const auto& candidate : registry.candidates()) {
    if (!candidate.rejected.empty()) {
      rejected.emplace_back(candidate.file, candidate.rejected);
      continue;
    }
    try {
      listing.add(registry, candidate);
    } catch (const Error& error) {
      rejected.emplace_back(candidate.file, error.message());
    }
  }
  listing.print();
  if (!verbose) {
    if (!rejected.empty()) std::cout << rejected.size() << " file(s) rejected: `gannet plugins list -v` says why\n";
    return;
  }
  std::cout << "\nthis host's fingerprint, which pinned plugins must match: " << plugin::host_fingerprint()
            << "\n\nsearched, in this order:\n";
  for (const auto& place : registry.searched()) std::cout << "  " << place << '\n';
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

std::string default_text(const gannet_param_spec& spec) {
  if (spec.flags & GANNET_PARAM_REQUIRED) return "required";
  return spec.default_json ? spec.default_json : "not set";
}

std::string remarks(const gannet_param_spec& spec) {
  std::string text = spec.doc ? spec.doc : "";
  if (spec.flags & GANNET_PARAM_DYNAMIC) text += " [may change between steps]";
  if (spec.flags & GANNET_PARAM_NULLABLE) text += " [null: not set]";
  if (spec.flags & GANNET_PARAM_DEPRECATED) text += " [deprecated]";
  return text;
}

void print_info(const Plugin& found) {
  const auto& descriptor = *found.descriptor;
  std::cout << plugin::kind_name(found.kind()) << ' ' << found.name() << ' ' << found.version() << ": "
            << (descriptor.doc ? descriptor.doc : "") << '\n'
            << "  device       " << or_any(found.device()) << '\n'
            << "  tier         " << tier_name(descriptor.tier) << '\n'
            << "  plugin ABI   " << descriptor.abi_major << '.' << descriptor.abi_minor << '\n';
  if (descriptor.fingerprint && *descriptor.fingerprint) std::cout << "  fingerprint  " << descriptor.fingerprint << '\n';
  if (const auto capabilities = capabilities_of(descriptor); !capabilities.empty())
    std::cout << "  capabilities " << capabilities << '\n';
  std::cout << "  file         " << found.file << '\n' << "  hash         " << found.hash << "\n\n";
  if (descriptor.param_count == 0) {
    std::cout << "  it takes no params\n";
    return;
  }
  Table table({"  param", "type", "range", "default", "meaning"});
  for (const auto* spec : plugin::specs_of(descriptor))
    table.add({std::string("  ") + spec->name, plugin::type_text(*spec), plugin::range_text(*spec), default_text(*spec),
               remarks(*spec)});
  std::cout << table.to_string();
}

// A path has a slash or ends in .so; anything else is a name of any kind: "AdamW", "optimizer/adamw", "optimizer/adamw@cuda".
std::vector<const Plugin*> look_up(Registry& registry, const std::string& text) {
  if (text.ends_with(".so") || std::filesystem::exists(text)) return registry.open_file(text);
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
    throw Error(ErrorCode::kPlugin, "there is no plugin '" + text + "'" + did_you_mean(lower(text), names),
                "`gannet plugins list -v` shows every plugin found, every place searched and every file rejected");
  return found;
}

void info(const std::string& text) {
  Registry registry({});
  bool first = true;
  for (const Plugin* found : look_up(registry, text)) {
    if (!std::exchange(first, false)) std::cout << '\n';
    print_info(*found);
  }
}

}  // namespace

void add_plugins(CLI::App& app) {
  auto* plugins = app.add_subcommand("plugins", "What the plugin loader finds");
  plugins->require_subcommand(1);

  auto* listing = plugins->add_subcommand("list", "Every plugin found, in search order");
  auto verbose = std::make_shared<bool>(false);
  listing->add_flag("-v,--verbose", *verbose, "open each: versions and hashes; also the places searched and the files rejected");
  listing->callback([verbose] { list(*verbose); });

  auto* information = plugins->add_subcommand("info", "A plugin's documentation, parameters and capabilities");
  auto name = std::make_shared<std::string>();
  information->add_option("plugin", *name, "a name (AdamW, optimizer/adamw@cpu) or a file")->required();
  information->callback([name] { info(*name); });
}

}  // namespace gannet::cli
