// gannet(1), in the macros of man(7).
#include <algorithm>
#include <sstream>

#include "base/text.h"
#include "cli/help.h"

namespace gannet::cli {
namespace {

// Escapes text for man: a hyphen prints as a minus, a backslash as itself, and no line begins with
// a control character.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char letter : text) {
    if (letter == '\\')
      out += "\\e";
    else if (letter == '-')
      out += "\\-";
    else
      out += letter;
  }
  return out.empty() || (out[0] != '.' && out[0] != '\'') ? out : "\\&" + out;
}

std::string as_written(const std::string& text) {
  std::string out = ".nf\n";
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) out += escaped(line) + "\n";
  return out + ".fi\n";
}

void add_options(const std::vector<OptionInfo>& options, std::string& page) {
  for (const OptionInfo& option : options) {
    page += ".TP\n.B " + escaped(join(option.names, ", ")) +
            (option.value.empty() || option.takes == OptionValueKind::kProgram ? "" : " \\fI" + escaped(option.value) + "\\fR") +
            "\n";
    page += escaped(option.meaning);
    if (!option.range.empty()) page += "; " + escaped(option.range);
    if (!option.fallback.empty()) page += "; default: " + escaped(option.fallback);
    page += ".\n";
  }
}

}  // namespace

std::string man_page(const CommandInfo& root, const std::string& version) {
  std::string page = ".TH GANNET 1 \"\" \"Gannet " + version + "\" \"User Commands\"\n.SH NAME\ngannet \\- " +
                     escaped(root.purpose) + "\n.SH SYNOPSIS\n.B gannet\n\\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n.SH DESCRIPTION\n" +
                     as_written(root.footer) + ".SH COMMANDS\n";
  for (const CommandInfo* command : all_of(root)) {
    if (command == &root || !command->commands.empty()) continue;
    page += ".SS " + escaped(command->path) + "\n" + escaped(command->purpose) + (command->purpose.ends_with('.') ? "\n" : ".\n");
    add_options(command->positionals, page);
    add_options(command->options, page);
    if (!command->footer.empty()) page += ".PP\n" + as_written(command->footer);
  }
  return page;
}

}  // namespace gannet::cli
