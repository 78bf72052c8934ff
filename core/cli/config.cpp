// gannet config check | resolve | keys: read a config without running anything, and print what is known of it.
#include <gannet/error.h>

#include <algorithm>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <memory>

#include "cli/commands.h"
#include "config/document.h"
#include "config/keys.h"
#include "config/resolve.h"

namespace gannet::cli {
namespace {

struct Options {
  std::string file;
  int64_t world_size = 0;  // 0: as the environment or the batch sizes say
  bool as_json = false;
  std::string section;
  bool all_keys = false;
};

std::shared_ptr<const config::Document> read(const std::string& path) { return config::Document::from_file(path); }

int64_t world_size(const Options& options, const config::Document& document) {
  if (options.world_size > 0) return options.world_size;
  if (const char* text = std::getenv("WORLD_SIZE")) {
    const long long size = std::atoll(text);
    if (size > 0) return size;
  }
  return config::implied_world_size(config::given_batch(document));
}

void print_notices(const config::Resolved& resolved) {
  for (const auto& notice : resolved.notices) std::cerr << "gannet: " << notice << '\n';
}

void check(const Options& options) {
  const auto document = read(options.file);
  const int64_t world = world_size(options, *document);
  const config::Resolved resolved = config::resolve(*document, world);
  std::cout << options.file << ": ok";
  if (world > 1) std::cout << " for " << world << " processes";
  std::cout << '\n';
  for (const auto& notice : resolved.notices) std::cout << "  " << notice << '\n';
}

void print_json(const config::Resolved& resolved) {
  std::cout << "{";
  const char* separator = "\n";
  for (const auto& line : resolved.effective) {
    std::cout << separator << "  " << Value(line.path).to_json() << ": "
              << Value(Dict{{"value", line.value}, {"origin", line.origin}}).to_json();
    separator = ",\n";
  }
  std::cout << "\n}\n";
}

void resolve(const Options& options) {
  const auto document = read(options.file);
  const int64_t world = world_size(options, *document);
  const config::Resolved resolved = config::resolve(*document, world);
  print_notices(resolved);
  if (options.as_json) return print_json(resolved);
  std::cout << "# world size " << world << '\n';
  std::vector<std::string> heads;
  size_t width = 0;
  for (const auto& line : resolved.effective) {
    heads.push_back(line.path + " = " + line.value.to_json());
    if (heads.back().size() <= 60) width = std::max(width, heads.back().size());
  }
  for (size_t i = 0; i < heads.size(); ++i)
    std::cout << std::left << std::setw(static_cast<int>(width)) << heads[i] << "   # " << resolved.effective[i].origin << '\n';
}

void print_key(const config::Key& key) {
  std::cout << key.path << "\n    " << to_string(key.type);
  if (!key.range.empty()) std::cout << ' ' << key.range;
  if (!key.is_section()) std::cout << ", default " << key.default_json;
  std::cout << " [" << (key.replaced_by.empty() ? "" : "deprecated, ") << to_string(key.status) << "]  " << key.meaning;
  if (!key.alias.empty()) std::cout << "; also named " << key.alias;
  if (!key.replaced_by.empty())
    std::cout << "; write " << key.replaced_by;
  else if (key.status == config::Status::kNoEffect && !key.note.empty())
    std::cout << " (" << key.note << ")";
  std::cout << '\n';
}

void keys(const Options& options) {
  std::string section = options.section;
  std::replace(section.begin(), section.end(), '.', '/');
  if (section.starts_with('/')) section.erase(0, 1);
  if (!section.empty() && !config::find_key(section))
    throw Error(ErrorCode::kArgument, "there is no key or section '" + options.section + "'",
                "`gannet config keys --all` lists all keys");
  if (!section.empty()) section = config::find_key(section)->path;
  size_t left_out = 0;
  for (const config::Key* key : config::all_keys()) {
    if (!section.empty() && key->path != section && !key->path.starts_with(section + "/")) continue;
    if (options.all_keys || config::is_read(key->status))
      print_key(*key);
    else
      ++left_out;
  }
  if (left_out > 0) std::cout << "(" << left_out << " more keys are known to DeepSpeed and not active in Gannet: add --all)\n";
}

}  // namespace

void add_config(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("config", "Check a ds_config.json, print its effective values, list the keys");
  command->require_subcommand(1);

  CLI::App* check_command = command->add_subcommand("check", "Check a config without running anything");
  CLI::App* resolve_command = command->add_subcommand("resolve", "Print every effective value and where it comes from");
  for (CLI::App* reader : {check_command, resolve_command}) {
    reader->add_option("FILE", options->file, "the config")->required();
    reader
        ->add_option("--world-size", options->world_size,
                     "number of processes (default: WORLD_SIZE, or what the batch sizes imply)")
        ->check(CLI::PositiveNumber);
  }
  resolve_command->add_flag("--json", options->as_json, "as one JSON object");
  check_command->callback([options] { check(*options); });
  resolve_command->callback([options] { resolve(*options); });

  CLI::App* keys_command = command->add_subcommand("keys", "List the keys: type, default, range, status, meaning");
  keys_command->add_option("SECTION", options->section, "only this section or key");
  keys_command->add_flag("--all", options->all_keys, "also the keys that Gannet does not act on");
  keys_command->callback([options] { keys(*options); });
}

}  // namespace gannet::cli
