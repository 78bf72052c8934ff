// Runs a parser's commands as a program: exceptions become an error message and an exit code.
#pragma once

namespace CLI {
class App;
}

namespace gannet::cli {

// Returns the program's exit code: 0, the command's own exit code, or that of the error.
int parse_and_run(CLI::App& app, int argc, char** argv);

}  // namespace gannet::cli
