// The commands and options of `gannet` as plain values, read from the parser: help, the manual
// page, completion scripts and the parser's error messages are all generated from this one tree, so
// that none of them can drift from the parser.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace gannet::cli {

enum class OptionValueKind { kNothing, kText, kFile, kFolder, kProgram };

struct OptionInfo {
  std::vector<std::string> names;  // "--num_gpus", "--num_accelerators"; for a positional, its name: "FILE"
  std::string value;               // placeholder of the value: "N"; "" for a flag
  std::string meaning;
  std::string range;                 // "1 to 4096"; "" if any value is valid
  std::string fallback;              // the default, as text; "" if there is none
  std::vector<std::string> choices;  // the fixed values that it accepts
  OptionValueKind takes = OptionValueKind::kNothing;
  bool is_required = false;
  bool is_repeated = false;  // a positional that takes several values
};

struct CommandInfo {
  std::string path;     // "gannet config check"
  std::string purpose;  // one sentence
  std::string footer;   // usage in words, examples, exit codes
  std::vector<OptionInfo> positionals, options;
  std::vector<CommandInfo> commands;
  bool runs_program = false;  // its options are followed by a program and the program's arguments

  std::string name() const { return path.substr(path.rfind(' ') + 1); }
};

CommandInfo describe(const CLI::App& app, const std::string& path);

// All commands of the tree, the root first.
std::vector<const CommandInfo*> all_of(const CommandInfo& root);

}  // namespace gannet::cli
