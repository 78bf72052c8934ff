// The command-line flags that DeepSpeed users expect of a program.
#include <gannet/error.h>
#include <gannet/initialize.h>

#include <charconv>
#include <optional>
#include <string_view>

#include "base/format.h"
#include "config/assignment.h"

namespace gannet {
namespace {

// `--deepspeed` by itself is a switch: it takes an argument as its value only if the argument is
// named like a config.
bool looks_like_config(std::string_view argument) {
  return !argument.starts_with('-') &&
         (argument.ends_with(".json") || argument.ends_with(".hjson") || argument.ends_with(".jsonc"));
}

}  // namespace

const char* ConfigArguments::help() {
  return "  --deepspeed_config FILE   the ds_config.json to train with\n"
         "  --deepspeed [FILE]        the same, as one flag; without FILE it is accepted and has no effect\n"
         "  --set PATH=VALUE          override a value of the config: --set optimizer.params.lr=3e-4; VALUE may be JSON\n"
         "  --estimate[=RANKS]        print what training would take on each rank, for every ZeRO stage and offload, and end\n";
}

Config ConfigArguments::whole_config() const {
  if (config.empty()) return overrides.empty() ? Config() : Config(overrides);
  Config whole(config);
  if (!overrides.empty()) whole.overwrite(overrides, "command line");
  return whole;
}

ConfigArguments take_config_arguments(int& argc, char** argv) {
  ConfigArguments taken;
  int kept = argc > 0 ? 1 : 0;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    const std::string flag = argument.substr(0, equals);
    if (flag == "--estimate") {
      taken.estimate = 0;
      if (equals != std::string::npos) {
        const std::string ranks = argument.substr(equals + 1);
        uint32_t count = 0;
        const auto [rest, failed] = std::from_chars(ranks.data(), ranks.data() + ranks.size(), count);
        if (failed != std::errc() || rest != ranks.data() + ranks.size() || count == 0)
          throw Error(ErrorCode::kArgument, formatted("{}: '{}' is not a number of ranks", argument, ranks),
                      "write --estimate=8, or --estimate for those of this run");
        taken.estimate = count;
      }
      continue;
    }
    if (flag != "--deepspeed" && flag != "--deepspeed_config" && flag != "--set") {
      argv[kept++] = argv[i];
      if (argument == "--") {  // the rest belongs to the program
        while (++i < argc) argv[kept++] = argv[i];
      }
      continue;
    }
    std::optional<std::string> value;
    if (equals != std::string::npos)
      value = argument.substr(equals + 1);
    else if (i + 1 < argc && (flag == "--deepspeed" ? looks_like_config(argv[i + 1]) : argv[i + 1][0] != '-'))
      value = argv[++i];
    if (flag == "--deepspeed") {
      taken.enabled = true;
      if (!value) continue;
    } else if (!value) {
      throw Error(ErrorCode::kArgument, formatted("{} needs a value", flag), ConfigArguments::help());
    }
    if (flag == "--set") {
      config::assign(taken.overrides, *value);
      continue;
    }
    if (!taken.config.empty() && taken.config != *value)
      throw Error(ErrorCode::kArgument, formatted("two configs were given: '{}' and '{}'", taken.config, *value), "give one");
    taken.config = *value;
    taken.enabled = true;
  }
  for (int i = kept; i < argc; ++i) argv[i] = nullptr;
  argc = kept;
  return taken;
}

}  // namespace gannet
