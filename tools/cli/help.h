// Help texts: `--help`, and the page for man(1).
#pragma once

#include <gannet/error.h>

#include <string>

#include "cli/tree.h"

namespace gannet::cli {

// The help text of a command: purpose, usage, commands, options with units and defaults, then the
// footer with examples and exit codes.
std::string help_text(const CommandInfo& command);

// The whole tree as one page in man's macros: gannet(1).
std::string man_page(const CommandInfo& root, const std::string& version);

// The footer (examples.cpp) of a command that sets none itself; "" if there is none.
const char* footer_of(const std::string& path);

// Makes the parser and all its commands print help in this form.
void use_our_help(CLI::App& app);

// Rewords the parser's error as one of Gannet's, with the argument at fault, the command, the
// nearest valid name or value, and the next step.
Error usage_error(const CLI::App& app, const CLI::ParseError& error);

}  // namespace gannet::cli
