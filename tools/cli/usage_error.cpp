#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/format.h"
#include "base/text.h"
#include "cli/help.h"

namespace gannet::cli {
namespace {

// The innermost command that the arguments reached.
const CLI::App& reached(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  return parsed.empty() ? app : reached(*parsed.back());
}

std::string path_of(const CLI::App& app) {
  return app.get_parent() ? formatted("{} {}", path_of(*app.get_parent()), app.get_name()) : app.get_name();
}

std::vector<std::string> option_names(const CommandInfo& command) {
  std::vector<std::string> names;
  for (const OptionInfo& option : command.options) names.insert(names.end(), option.names.begin(), option.names.end());
  return names;
}

const OptionInfo* find(const CommandInfo& command, const std::string& name) {
  for (const auto* list : {&command.options, &command.positionals})
    for (const OptionInfo& option : *list)
      for (const std::string& known : option.names)
        if (lower(known) == lower(name)) return &option;
  return nullptr;
}

// The option's first long name ("--..."), or its last name if it has none.
std::string name_of(const OptionInfo& option) {
  for (const std::string& name : option.names)
    if (name.starts_with("--")) return name;
  return option.names.back();
}

std::string wanted(const OptionInfo& option) {
  if (!option.choices.empty()) return formatted("one of {}", join(option.choices, ", "));
  if (!option.range.empty()) return formatted("a number {}{}", option.range.starts_with("above") ? "" : "from ", option.range);
  return option.value.empty() ? "no value" : option.value;
}

}  // namespace

Error usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& at = reached(app);
  const CommandInfo command = describe(at, path_of(at));
  const std::string help = formatted("`{} --help` lists its arguments", command.path);
  const auto usage = [&](const std::string& what, const std::string& next) { return Error(ErrorCode::kArgument, what, next); };
  // Report unplaced arguments first: a missing argument may be one of them, misspelt.
  for (const std::string& left : command.runs_program ? std::vector<std::string>() : at.remaining()) {
    if (left.size() < 2 || left[0] != '-') continue;
    const std::string name = left.substr(0, left.find('='));
    return usage(formatted("unknown option '{}' of `{}`{}", name, command.path, did_you_mean(name, option_names(command))), help);
  }
  const std::string message = error.what(), name = message.substr(0, message.find(": "));
  const OptionInfo* option = find(command, name.substr(name.rfind(',') + 1));
  if (dynamic_cast<const CLI::ExtrasError*>(&error) && !at.remaining().empty())
    return usage(formatted("`{}` does not take '{}'", command.path, at.remaining().front()), help);
  if (dynamic_cast<const CLI::RequiredError*>(&error)) {
    if (!command.commands.empty()) {
      std::vector<std::string> names;
      for (const CommandInfo& one : command.commands) names.push_back(one.name());
      return usage(formatted("`{}` needs a command: {}", command.path, join(names, ", ")), help);
    }
    const std::string missing = message.substr(0, message.find(" is required"));
    const OptionInfo* needed = find(command, missing);
    return usage(
        formatted("`{}` needs {}{}", command.path,
                  needed ? join(needed->names, ", ") + (missing[0] == '-' ? formatted(" {}", needed->value) : "") : missing,
                  needed && !needed->meaning.empty() ? formatted(" ({})", needed->meaning) : ""),
        help);
  }
  if (option && dynamic_cast<const CLI::ArgumentMismatch*>(&error))
    return usage(formatted("`{}`: {} needs a value: {}", command.path, name_of(*option), wanted(*option)), help);
  if (option && (dynamic_cast<const CLI::ValidationError*>(&error) || dynamic_cast<const CLI::ConversionError*>(&error))) {
    // "--dtype: bf15 not in {...}", "--num_procs: Value 0 not in range 1 to 4096"
    std::string found = message.substr(std::min(message.size(), name.size() + 2));
    if (found.starts_with("Value ")) found.erase(0, 6);
    found = found.substr(0, found.find(" not in "));
    if (found.find(' ') == std::string::npos)
      return usage(formatted("`{}`: {} is '{}', and must be {}{}", command.path, name_of(*option), found, wanted(*option),
                             did_you_mean(found, option->choices)),
                   help);
  }
  return usage(formatted("`{}`: {}", command.path, message), help);
}

}  // namespace gannet::cli
