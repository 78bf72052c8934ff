#include "cli/tree.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>

#include "base/format.h"
#include "base/text.h"

namespace gannet::cli {
namespace {

std::string upper(std::string text) {
  for (char& letter : text) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return text;
}

// Reads the parser's text for a type: "UINT:INT in [1 - 4096]", "TEXT:{bf16,fp16}",
// "FLOAT:POSITIVE", or the name given to type_name().
void read_type(const std::string& type, OptionInfo& info) {
  const size_t colon = type.find(':');
  info.value = type.substr(0, colon);
  std::string rest = colon == std::string::npos ? "" : type.substr(colon + 1);
  if (info.value.starts_with("{")) std::swap(info.value, rest);
  if (const size_t begin = rest.find(" in ["); begin != std::string::npos) {
    info.range = rest.substr(begin + 5, rest.find(']') - begin - 5);
    if (const size_t dash = info.range.find(" - "); dash != std::string::npos) info.range.replace(dash, 3, " to ");
  } else if (rest.starts_with("{")) {
    info.choices = split(rest.substr(1, rest.find('}') - 1), ',');
  } else if (rest == "POSITIVE") {
    info.range = "above 0";
  }
  if (info.value == "INT" || info.value == "UINT" || info.value == "FLOAT") info.value = "N";
  if (info.value.starts_with("SIZE") || rest.starts_with("SIZE")) info.value = "SIZE";
  if (info.value.empty() || info.value == "TEXT") info.value = info.choices.empty() ? "VALUE" : join(info.choices, "|");
}

OptionValueKind takes_of(const std::string& word) {
  if (word == "FILE" || word == "CONFIG") return OptionValueKind::kFile;
  if (word == "FOLDER" || word == "OUT" || word == "PATH") return OptionValueKind::kFolder;
  return word == "PROGRAM" ? OptionValueKind::kProgram : OptionValueKind::kText;
}

OptionInfo describe(const CLI::Option& option) {
  OptionInfo info;
  info.meaning = option.get_description();
  info.is_required = option.get_required();
  const bool is_flag = option.get_items_expected_max() == 0;
  if (!is_flag) {
    read_type(option.get_type_name(), info);
    info.fallback = option.get_default_str();
    info.takes = takes_of(info.value);
  }
  if (option.nonpositional()) {
    for (const std::string& name : option.get_snames()) info.names.push_back(formatted("-{}", name));
    for (const std::string& name : option.get_lnames()) info.names.push_back(formatted("--{}", name));
  } else {
    info.names = {upper(option.get_name(true))};
    if (info.takes == OptionValueKind::kText) info.takes = takes_of(info.names[0]);
    info.is_repeated = option.get_items_expected_max() > 1;
  }
  return info;
}

}  // namespace

CommandInfo describe(const CLI::App& app, const std::string& path) {
  CommandInfo info;
  info.path = path;
  info.purpose = app.get_description();
  info.footer = app.get_footer();
  info.runs_program = app.get_prefix_command();
  for (const CLI::Option* option : app.get_options())
    (option->nonpositional() ? info.options : info.positionals).push_back(describe(*option));
  for (const CLI::App* command : app.get_subcommands(nullptr))
    info.commands.push_back(describe(*command, formatted("{} {}", path, command->get_name())));
  if (info.runs_program)
    info.positionals.push_back(
        {{"PROGRAM"}, "PROGRAM", "the program to start, followed by its arguments", "", "", {}, OptionValueKind::kProgram, true});
  return info;
}

std::vector<const CommandInfo*> all_of(const CommandInfo& root) {
  std::vector<const CommandInfo*> all = {&root};
  for (const CommandInfo& command : root.commands)
    for (const CommandInfo* below : all_of(command)) all.push_back(below);
  return all;
}

}  // namespace gannet::cli
