// Help texts: `--help`, and the page for man(1).
#pragma once

#include <gannet/error.h>

#include <string>

#include "cli/tree.h"

namespace gannet::cli {

// Purpose, usage, commands, options with units and defaults, then the footer: examples and exit codes.
std::string help_text(const CommandInfo& command);

// The whole tree as one page in man's macros: gannet(1).
std::string man_page(const CommandInfo& root, const std::string& version);

// The footer (examples.cpp) of a command that sets none itself; "" if there is none.
const char* footer_of(const std::string& path);

// Gives the parser and all its commands help in this form.
void use_our_help(CLI::App& app);

// The parser's error in Gannet's words, with the next step: the argument, its place, and the
// nearest valid one.
Error usage_error(const CLI::App& app, const CLI::ParseError& error);

}  // namespace gannet::cli
