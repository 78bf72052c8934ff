// gannet config check | resolve | keys: reads a config without running it, and prints its mistakes,
// values or keys.
#include <gannet/config.h>
#include <gannet/error.h>
#include <gannet/fill_auto.h>
#include <gannet/training_arguments.h>

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <memory>

#include "base/format.h"
#include "cli/commands.h"
#include "config/assignment.h"
#include "config/document.h"
#include "config/keys.h"
#include "config/parse.h"
#include "config/resolve.h"
#include "doctor/config_check.h"

namespace gannet::cli {
namespace {

struct ConfigCommandArguments {
  std::string file;
  std::vector<std::string> files;  // for `check`
  int64_t world_size = 0;          // 0: taken from the environment or the batch sizes
  std::vector<std::string> assignments;
  bool as_json = false, no_plugins = false;
  std::string arguments_file, model_file;  // for `resolve`: the files that fill "auto" values
  int64_t updates = 0;                     // of the run; 0: not given
  std::string section;
  bool all_keys = false;
};

Dict overrides(const ConfigCommandArguments& options) {
  Dict dict;
  for (const std::string& assignment : options.assignments) config::assign(dict, assignment);
  return dict;
}

doctor::ConfigCheckOptions check_options(const ConfigCommandArguments& options) {
  return {.world_size = options.world_size, .with_plugins = !options.no_plugins, .overrides = overrides(options)};
}

// Prints the mistakes of `file`, and returns the exit code: 0 without mistakes, 71 (kPluginFault's) if plugins cause all of
// them and the file is not at fault, else 2.
int print_mistakes(const std::string& file, const doctor::ConfigCheck& found) {
  if (found.mistakes.empty()) return 0;
  for (const Error& mistake : found.mistakes) std::cerr << "gannet: " << mistake.what() << '\n';
  if (found.mistakes.size() > 1 || found.is_partial)
    std::cerr << "gannet: " << file << " has " << found.mistakes.size() << (found.mistakes.size() == 1 ? " mistake" : " mistakes")
              << (found.is_partial ? "; whether its values fit together is not checked until the keys are right" : "") << '\n';
  const bool is_plugins = std::all_of(found.mistakes.begin(), found.mistakes.end(),
                                      [](const Error& mistake) { return mistake.code() == ErrorCode::kPluginFault; });
  return is_plugins ? found.mistakes.front().exit_code() : 2;
}

int check(const std::string& file, const ConfigCommandArguments& options) try {
  const doctor::ConfigCheck found = doctor::check_config(file, check_options(options));
  if (found.mistakes.empty()) {
    std::cout << file << ": ok";
    if (found.world_size > 1) std::cout << " for " << found.world_size << " processes";
    std::cout << '\n';
  }
  for (const auto& notice : found.notices) std::cout << "  " << notice << '\n';
  std::cout.flush();
  return print_mistakes(file, found);
} catch (const Error& error) {
  if (options.files.size() == 1) throw;
  std::cerr << "gannet: " << error.what() << '\n';
  return error.exit_code();
}

void check(const ConfigCommandArguments& options) {
  int code = 0;  // of the first file with mistakes of its own, else of the first plugin at fault
  for (const std::string& file : options.files)
    if (const int one = check(file == "-" ? "/dev/stdin" : file, options); code == 0 || (code != 2 && one == 2)) code = one;
  if (code != 0) throw CLI::RuntimeError(code);
}

// Shows "auto" for a value that is known only once the run has its data.
Value shown(const config::EffectiveValue& line) { return line.origin == kKnownLater ? Value("auto") : line.value; }

void print_json(const config::ResolvedConfig& resolved) {
  std::cout << "{";
  const char* separator = "\n";
  for (const auto& line : resolved.effective) {
    std::cout << separator << "  " << Value(config::dotted(line.path)).to_json() << ": "
              << Value(Dict{{"value", shown(line)}, {"origin", line.origin}}).to_json();
    separator = ",\n";
  }
  std::cout << "\n}\n";
}

// The config with its "auto" values filled from the arguments file and the model file.
std::shared_ptr<const config::Document> filled(const ConfigCommandArguments& options,
                                               std::shared_ptr<const config::Document> document) {
  if (options.arguments_file.empty()) {
    if (options.model_file.empty() && options.updates == 0) return document;
    throw Error(ErrorCode::kArgument,
                formatted("{} fills \"auto\" values only together with --arguments",
                          options.model_file.empty() ? "--updates" : "--model-config"),
                "add --arguments FILE; {} in it stands for every default");
  }
  AutoFacts facts{.world_size = std::max<int64_t>(options.world_size, 1)};
  if (options.world_size == 0) facts.world_size = doctor::world_size_of(check_options(options), *document);
  facts.world_size = config::data_ranks(*document, facts.world_size);
  if (!options.model_file.empty()) {
    facts.hidden_size = hidden_size_of(config::parse_file(options.model_file).root);
    if (!facts.hidden_size)
      throw Error(ErrorCode::kArgument, formatted("{} names no hidden size", options.model_file),
                  "it has none of hidden_size, n_embd, d_model, hidden_sizes and text_config: write the sizes in the config");
  }
  Config config{std::move(document)};
  const GivenArguments given = given_training_arguments(options.arguments_file);
  for (const std::string& note : given.notes) std::cerr << "gannet: " << options.arguments_file << ": " << note << '\n';
  if (options.updates > 0) facts.num_training_steps = options.updates;
  facts.steps_are_known_later = options.updates == 0;
  fill_auto(config, given.values, facts);
  for (const std::string& line : arguments_without_effect(config, given.values)) std::cerr << "gannet: " << line << '\n';
  return config.document();
}

void resolve(const ConfigCommandArguments& options) {
  auto document = config::Document::from_file(options.file == "-" ? "/dev/stdin" : options.file);
  if (!options.assignments.empty()) document = document->merged(overrides(options), "--set");
  document = filled(options, std::move(document));
  const int64_t ranks = doctor::world_size_of(check_options(options), *document);
  const int64_t world = config::data_ranks(*document, ranks);
  const config::ResolvedConfig resolved = config::resolve(*document, world);
  for (const auto& notice : resolved.notices) std::cerr << "gannet: " << notice << '\n';
  doctor::ConfigCheck found;
  found.world_size = ranks;
  if (!options.no_plugins) doctor::check_plugins(*document, resolved.settings, found);
  for (const auto& notice : found.notices) std::cerr << "gannet: " << notice << '\n';
  if (const int code = print_mistakes(options.file, found)) throw CLI::RuntimeError(code);
  if (options.as_json) return print_json(resolved);
  std::cout << "# world size " << world;
  if (world != ranks) std::cout << " (the ranks with data of their own, of " << ranks << " in the mesh)";
  std::cout << '\n';
  std::vector<std::string> heads;
  size_t width = 0;
  for (const auto& line : resolved.effective) {
    heads.push_back(formatted("{} = {}", config::dotted(line.path), shown(line).to_json()));
    if (heads.back().size() <= 60) width = std::max(width, heads.back().size());
  }
  for (size_t i = 0; i < heads.size(); ++i)
    std::cout << std::left << std::setw(static_cast<int>(width)) << heads[i] << "   # " << resolved.effective[i].origin << '\n';
}

void print_key(const config::Key& key) {
  std::cout << config::dotted(key.path) << "\n    " << to_string(key.type);
  if (!key.range.empty()) std::cout << ' ' << key.range;
  if (!key.is_section()) std::cout << ", default " << key.default_json;
  std::cout << " [" << (key.replaced_by.empty() ? "" : "deprecated, ") << to_string(key.status) << "]  " << key.meaning;
  if (!key.alias.empty()) std::cout << "; also named " << key.alias;
  if (!key.replaced_by.empty())
    std::cout << "; write " << config::dotted(key.replaced_by);
  else if (key.status == config::Status::kNoEffect && !key.note.empty())
    std::cout << " (" << key.note << ")";
  std::cout << '\n';
}

void keys(const ConfigCommandArguments& options) {
  std::string section = options.section;
  std::replace(section.begin(), section.end(), '.', '/');
  if (section.starts_with('/')) section.erase(0, 1);
  if (!section.empty() && !config::find_key(section))
    throw Error(ErrorCode::kArgument, formatted("there is no key or section '{}'", options.section),
                "`gannet config keys --all` lists all keys");
  if (!section.empty()) section = config::find_key(section)->path;
  size_t left_out = 0;
  for (const config::Key* key : config::all_keys()) {
    if (!section.empty() && key->path != section && !key->path.starts_with(formatted("{}/", section))) continue;
    if (options.all_keys || config::is_read(key->status))
      print_key(*key);
    else
      ++left_out;
  }
  if (left_out > 0) std::cout << "(" << left_out << " more keys are known to DeepSpeed but not active in Gannet: add --all)\n";
}

}  // namespace

void add_config(CLI::App& app) {
  auto options = std::make_shared<ConfigCommandArguments>();
  CLI::App* command = app.add_subcommand("config", "Check a ds_config.json, print its effective values, list the keys");
  command->require_subcommand(1);

  CLI::App* check_command = command->add_subcommand("check", "Check a config without running anything");
  CLI::App* resolve_command = command->add_subcommand("resolve", "Print every effective value and where it comes from");
  check_command->add_option("FILE", options->files, "the configs; - reads the standard input")->required();
  resolve_command->add_option("FILE", options->file, "the config; - reads the standard input")->required();
  for (CLI::App* reader : {check_command, resolve_command}) {
    reader
        ->add_option("--world-size", options->world_size,
                     "number of processes (default: WORLD_SIZE, or what the batch sizes imply)")
        ->type_name("N")
        ->check(CLI::PositiveNumber);
    reader->add_option("--set", options->assignments, "override a value of the file; may be given more than once")
        ->type_name("PATH=VALUE")
        ->allow_extra_args(false);
    reader->add_flag("--no-plugins", options->no_plugins, "do not open plugins: check only the keys and their values");
  }
  resolve_command
      ->add_option("--arguments", options->arguments_file,
                   "training arguments under Hugging Face's names, a JSON or YAML file: they fill \"auto\"")
      ->type_name("FILE");
  resolve_command->add_option("--model-config", options->model_file, "the model's config.json: its hidden size fills \"auto\"")
      ->type_name("FILE");
  resolve_command
      ->add_option("--updates", options->updates,
                   "updates of the run, which the schedule's \"auto\" values follow from (default: those of max_steps)")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  resolve_command->add_flag("--json", options->as_json, "as one JSON object");
  check_command->callback([options] { check(*options); });
  resolve_command->callback([options] { resolve(*options); });

  CLI::App* keys_command = command->add_subcommand("keys", "List the keys: type, default, range, status, meaning");
  keys_command->add_option("SECTION", options->section, "only this section or key");
  keys_command->add_flag("--all", options->all_keys, "include keys that Gannet does not act on");
  keys_command->callback([options] { keys(*options); });
}

}  // namespace gannet::cli
