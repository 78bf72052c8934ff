#include "cli/commands.h"

#include <gannet/error.h>

#include <iostream>

int main(int argc, char** argv) {
  CLI::App app("Gannet trains LibTorch models from a ds_config.json.", "gannet");
  app.set_version_flag("--version", GANNET_VERSION);
  app.require_subcommand(1);
  gannet::cli::add_run(app);
  gannet::cli::add_config(app);
  gannet::cli::add_schedule(app);
  gannet::cli::add_plugins(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::RuntimeError& error) {  // a command's own exit code
    return error.get_exit_code();
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const gannet::Error& error) {
    std::cerr << "gannet: " << error.what() << '\n';
    return error.exit_code();
  }
  return 0;
}
