#include "cli/app.h"

#include <gannet/error.h>

#include <algorithm>
#include <exception>
#include <iostream>
#include <new>
#include <vector>

#include "base/format.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/help.h"

namespace gannet::cli {
namespace {

// For a misspelt command the parser reports only that a command is required.
void check_commands(CLI::App* app, int argc, char** argv) {
  std::string so_far = "gannet";
  for (int i = 1; i < argc && argv[i][0] != '-'; ++i) {
    const auto commands = app->get_subcommands(nullptr);
    if (commands.empty()) return;  // the rest are the command's own arguments
    std::vector<std::string> names;
    for (const CLI::App* command : commands) names.push_back(command->get_name());
    const auto found = std::find(names.begin(), names.end(), argv[i]);
    if (found == names.end())
      throw Error(ErrorCode::kArgument, formatted("there is no command '{} {}'{}", so_far, argv[i], did_you_mean(argv[i], names)),
                  formatted("it is one of: {}", join(names, ", ")));
    app = commands[static_cast<size_t>(found - names.begin())];
    so_far += std::string(" ") + argv[i];
  }
}

}  // namespace

int parse_and_run(CLI::App& app, int argc, char** argv) {
  try {
    check_commands(&app, argc, argv);
    std::vector<std::string> arguments(argv + 1, argv + argc);
    drop_separator(app, arguments);
    std::reverse(arguments.begin(), arguments.end());  // the parser takes them in reverse order
    app.parse(std::move(arguments));
  } catch (const CLI::RuntimeError& error) {  // a command's own exit code
    return error.get_exit_code();
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    const Error told = usage_error(app, error);
    std::cerr << "gannet: " << told.what() << '\n';
    return told.exit_code();
  } catch (const Error& error) {
    std::cerr << "gannet: " << error.what() << '\n';
    return error.exit_code();
  } catch (const std::bad_alloc&) {
    std::cerr << "gannet: this command needs more memory than is available\n";
    return Error(ErrorCode::kOutOfMemory, "").exit_code();
  } catch (const std::exception& error) {  // from a library; no command may end in abort()
    std::cerr << "gannet: a defect of Gannet: an unexpected exception: " << error.what()
              << "\n  (please report it, with the command and `gannet doctor --report`)\n";
    return Error(ErrorCode::kInternal, "").exit_code();
  } catch (...) {
    std::cerr << "gannet: a defect of Gannet: an unexpected exception\n"
                 "  (please report it, with the command and `gannet doctor --report`)\n";
    return Error(ErrorCode::kInternal, "").exit_code();
  }
  return 0;
}

}  // namespace gannet::cli
