// The program `gannet`. It starts ranks and prints its version itself, without LibTorch. Loading it
// takes a fifth of a second; `gannet run` thus handles signals from its first millisecond.
// gannet-kit checks plugins and needs no LibTorch either; gannet-train trains exported models; gannet-tools runs all
// other commands.
// Both are in ../libexec/gannet.
#include <gannet/error.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <string>
#include <system_error>

#include "base/format.h"
#include "cli/app.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/kit_commands.h"
#include "launch/agent.h"

namespace {

int become(const char* program, char** argv) {
  std::error_code code;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", code);
  const std::string tools = (self.parent_path().parent_path() / "libexec/gannet" / program).string();
  ::execv(tools.c_str(), argv);
  const int failure = errno;
  const bool is_sdk = std::filesystem::exists(self.parent_path().parent_path() / "lib/cmake/gannet/GannetPlugin.cmake", code);
  const gannet::Error error(
      gannet::ErrorCode::kUnavailable, gannet::formatted("cannot start {}: {}", tools, std::strerror(failure)),
      is_sdk && failure == ENOENT
          ? "this is only the SDK, whose `gannet` has `plugins new`, `check`, `bench` and `trust`: run the others with "
            "the `gannet` of an installed Gannet"
          : "`gannet` looks for it in its own tree: install or copy the folders bin, lib and libexec together");
  std::cerr << "gannet: " << error.what() << '\n';
  return error.exit_code();
}

// Started by `gannet run --hostfile`, through ssh.
int be_an_agent() {
  try {
    return gannet::launch::run_agent();
  } catch (const std::exception& error) {
    std::cerr << "gannet: " << error.what() << '\n';
    return 1;
  }
}

bool is_of_the_kit(int argc, char** argv) {
  if (argc < 3 || std::string(argv[1]) != "plugins") return false;
  return std::find(gannet::cli::kKitCommands.begin(), gannet::cli::kKitCommands.end(), argv[2]) !=
         gannet::cli::kKitCommands.end();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "--version" && argc == 2) {
    std::cout << GANNET_VERSION << std::endl;
    return 0;
  }
  if (is_of_the_kit(argc, argv)) return become("gannet-kit", argv);
  const bool is_help = argc == 3 && std::string(argv[2]) == "--help";
  if (command == "train" && !is_help) return become("gannet-train", argv + 1);
  if (command == "node" && argc == 2) return be_an_agent();
  if (command != "run") return become("gannet-tools", argv);
  CLI::App app("train LibTorch models from a ds_config.json", "gannet");
  gannet::cli::add_run(app);
  gannet::cli::use_our_help(app);
  return gannet::cli::parse_and_run(app, argc, argv);
}
