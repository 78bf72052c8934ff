#include <gannet/error.h>

#include <algorithm>
#include <exception>
#include <iostream>
#include <new>

#include "base/text.h"
#include "cli/commands.h"
#include "cli/help.h"

namespace {

constexpr const char* kFooter =
    R"(Examples:
  gannet doctor                                                 # is this machine ready?
  gannet config check ds_config.json                            # is the config right?
  gannet run --num_procs 2 ./train --deepspeed_config ds_config.json
  gannet checkpoint list run1

Exit code: 0 on success; 2 for a user's mistake, 3 for an environment's fault, 70 for a defect of Gannet, 71 for a fault
of a plugin; where a command has others, its own help says so.)";

// The parser says of a misspelt command only that one is required.
void check_commands(CLI::App* app, int argc, char** argv) {
  std::string so_far = "gannet";
  for (int i = 1; i < argc && argv[i][0] != '-'; ++i) {
    const auto commands = app->get_subcommands(nullptr);
    if (commands.empty()) return;  // what follows are the command's own arguments
    std::vector<std::string> names;
    for (const CLI::App* command : commands) names.push_back(command->get_name());
    const auto found = std::find(names.begin(), names.end(), argv[i]);
    if (found == names.end())
      throw gannet::Error(gannet::ErrorCode::kArgument,
                          "there is no command '" + so_far + " " + argv[i] + "'" + gannet::did_you_mean(argv[i], names),
                          "it is one of: " + gannet::join(names, ", "));
    app = commands[static_cast<size_t>(found - names.begin())];
    so_far += std::string(" ") + argv[i];
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("train LibTorch models from a ds_config.json", "gannet");
  app.set_version_flag("--version", GANNET_VERSION, "print the version and exit");
  app.require_subcommand(1);
  gannet::cli::add_run(app);
  gannet::cli::add_config(app);
  gannet::cli::add_schedule(app);
  gannet::cli::add_estimate(app);
  gannet::cli::add_plugins(app);
  gannet::cli::add_checkpoint(app);
  gannet::cli::add_report(app);
  gannet::cli::add_bench(app);
  gannet::cli::add_doctor(app);
  gannet::cli::add_shell(app);
  app.footer(kFooter);  // now: a command takes over what stands there when it is made
  gannet::cli::use_our_help(app);
  try {
    check_commands(&app, argc, argv);
    std::vector<std::string> arguments(argv + 1, argv + argc);
    gannet::cli::drop_separator(app, arguments);
    std::reverse(arguments.begin(), arguments.end());  // as the parser takes them
    app.parse(std::move(arguments));
  } catch (const CLI::RuntimeError& error) {  // a command's own exit code
    return error.get_exit_code();
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    const gannet::Error told = gannet::cli::usage_error(app, error);
    std::cerr << "gannet: " << told.what() << '\n';
    return told.exit_code();
  } catch (const gannet::Error& error) {
    std::cerr << "gannet: " << error.what() << '\n';
    return error.exit_code();
  } catch (const std::bad_alloc&) {
    std::cerr << "gannet: this command needs more memory than there is\n";
    return gannet::Error(gannet::ErrorCode::kOutOfMemory, "").exit_code();
  } catch (const std::exception& error) {  // a library's: no command ends by abort()
    std::cerr << "gannet: a defect of Gannet: an exception that no command expects: " << error.what()
              << "\n  (please report it, with the command and `gannet doctor --report`)\n";
    return gannet::Error(gannet::ErrorCode::kInternal, "").exit_code();
  } catch (...) {
    std::cerr << "gannet: a defect of Gannet: an exception that no command expects\n"
                 "  (please report it, with the command and `gannet doctor --report`)\n";
    return gannet::Error(gannet::ErrorCode::kInternal, "").exit_code();
  }
  return 0;
}
