#include "cli/help.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>

#include "base/format.h"
#include "base/text.h"

namespace gannet::cli {
namespace {

constexpr size_t kWidth = 100, kColumn = 30;

// `text`, which starts at `column`, wrapped to lines of at most kWidth and indented to `column`.
std::string wrapped(const std::string& text, size_t column) {
  std::istringstream words(text);
  std::string lines;
  size_t at = column;
  for (std::string word; words >> word;) {
    if (at > column && at + 1 + word.size() > kWidth) {
      lines += formatted("\n{}", std::string(column, ' '));
      at = column;
    }
    lines += (at > column ? " " : "") + word;
    at += word.size() + (at > column ? 1 : 0);
  }
  return lines;
}

std::string row(const std::string& head, const std::string& text) {
  std::string line = formatted("  {}", head);
  line += line.size() + 2 > kColumn ? formatted("\n{}", std::string(kColumn, ' ')) : std::string(kColumn - line.size(), ' ');
  return formatted("{}{}\n", line, wrapped(text, kColumn));
}

std::string head_of(const OptionInfo& option) {
  return join(option.names, ", ") + (option.value.empty() ? "" : formatted(" {}", option.value));
}

// An option's meaning and its remarks: "ranks to start (1 to 4096; default: 1)".
std::string meaning_of(const OptionInfo& option) {
  std::vector<std::string> remarks;
  if (!option.range.empty()) remarks.push_back(option.range);
  if (!option.fallback.empty()) remarks.push_back(formatted("default: {}", option.fallback));
  if (option.is_required) remarks.push_back("required");
  return option.meaning + (remarks.empty() ? "" : formatted(" ({})", join(remarks, "; ")));
}

std::string usage_of(const CommandInfo& command) {
  std::string usage = command.path;
  for (const OptionInfo& option : command.options)
    if (option.is_required) usage += formatted(" {} {}", option.names.back(), option.value);
  usage += " [OPTIONS]";
  if (command.runs_program) return formatted("{} [--] PROGRAM ARGS...", usage);
  for (const OptionInfo& positional : command.positionals) {
    const std::string value = positional.names[0] + (positional.is_repeated ? "..." : "");
    usage += positional.is_required ? formatted(" {}", value) : formatted(" [{}]", value);
  }
  if (!command.commands.empty()) usage += " COMMAND";
  return usage;
}

// Capitalises the first letter and adds a full stop if there is none.
std::string sentence(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  if (!text.empty() && text.back() != '.') text += '.';
  return text;
}

}  // namespace

std::string help_text(const CommandInfo& command) {
  std::string text = formatted("{}\n\nUsage: {}\n", wrapped(sentence(command.purpose), 0), usage_of(command));
  if (!command.commands.empty()) {
    text += "\nCommands:\n";
    for (const CommandInfo& one : command.commands) text += row(one.name(), one.purpose);
  }
  if (!command.positionals.empty()) {
    text += "\nArguments:\n";
    for (const OptionInfo& one : command.positionals) text += row(one.names[0], meaning_of(one));
  }
  text += "\nOptions:\n";
  for (const OptionInfo& option : command.options) text += row(head_of(option), meaning_of(option));
  if (!command.footer.empty()) text += formatted("\n{}\n", command.footer);
  if (!command.commands.empty()) text += formatted("\n`{} COMMAND --help` describes each.\n", command.path);
  return text;
}

void use_our_help(CLI::App& app) {
  class Formatter : public CLI::FormatterBase {
   public:
    std::string make_help(const CLI::App* app, std::string path, CLI::AppFormatMode) const override {
      return help_text(describe(*app, path));
    }
  };
  const auto formatter = std::make_shared<Formatter>();
  const auto apply = [&](CLI::App* command, const std::string& path, const auto& self) -> void {
    command->formatter(formatter);
    if (command->get_footer().empty()) command->footer(footer_of(path));
    command->set_help_flag("-h,--help", "print this help and exit");
    for (CLI::App* below : command->get_subcommands(nullptr)) self(below, formatted("{} {}", path, below->get_name()), self);
  };
  apply(&app, "gannet", apply);
}

}  // namespace gannet::cli
