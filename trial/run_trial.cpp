// Runs a trial, from its settings or from a command line.
#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <cxxabi.h>
#include <gannet/error.h>
#include <gannet/log.h>
#include <gannet/stop.h>
#include <gannet/trial.h>

#include <cstdlib>
#include <iostream>
#include <utility>

#include "runner.h"

namespace gannet {
namespace {

std::string readable(const char* type) {
  int status = 0;
  char* text = abi::__cxa_demangle(type, nullptr, nullptr, &status);
  std::string name = status == 0 ? text : type;
  std::free(text);
  return name;
}

// Initialises the process group before the trial is constructed, as the trial's config specifies.
std::shared_ptr<ProcessGroup> meet(const Hparams& hparams) {
  if (is_distributed_initialized()) return init_distributed();
  DistributedOptions options;
  const Dict& values = hparams.peek();
  if (const Value* base = values.find("deepspeed_config"); base && (base->is_string() || base->is_dict())) {
    const Value* overwrite = values.find("overwrite_deepspeed_args");
    const Config config = overwrite_deepspeed_config(*base, overwrite && overwrite->is_dict() ? overwrite->as_dict() : Dict());
    const auto text = [&](const char* path, std::string& into) {
      if (const Value value = config.get(path).value; value.is_string()) into = value.as_string();
    };
    const auto texts = [&](const char* path, std::vector<std::string>& into) {
      if (const Value value = config.get(path).value; value.is_list())
        for (const Value& part : value.as_list()) into.push_back(part.as_string());
    };
    const auto number = [&](const char* path, std::optional<double>& into) {
      if (const Value value = config.get(path).value; value.is_number()) into = value.as_number();
    };
    text("comm.type", options.comm);
    text("comm.host", options.host_comm);
    if (const Value params = config.get("comm.params").value; params.is_dict()) options.comm_params = params.as_dict();
    texts("plugins.path", options.plugin_paths);
    texts("plugins.allow", options.plugins_allowed);
    text("plugins.trusted", options.plugins_trusted);
    number("gannet.timeout_seconds", options.timeout_seconds);
    number("gannet.deadline_seconds", options.deadline_seconds);
  }
  return init_distributed(options);
}

}  // namespace

namespace detail {

TrialResult run_trial(const char* type, const MakeTrial& make, TrialSettings settings) {
  settings.check();
  const auto world = meet(settings.hparams);
  at::manual_seed(static_cast<uint64_t>(settings.seed));  // the same model on every rank
  try {
    TrialContext context(std::move(settings), world);
    const auto trial = make(context);
    return TrialRunner(*trial, context, readable(type)).run();
  } catch (const std::exception& error) {  // perhaps only this rank throws, and the program may catch it: others must not wait
    world->report_failure("run_trial()", error.what());
    throw;
  }
}

int run_trial(const char* type, const MakeTrial& make, int argc, char** argv, const TrialOptions& options) {
  try {
    const TrialResult result = run_trial(type, make, parse_trial_settings(argc, argv, options));
    return result.stopped ? kStoppedExitCode : 0;
  } catch (const std::exception& error) {
    const auto ours = error_of(error);
    // Without the stack of C++ frames that LibTorch adds.
    const auto* const torchs = dynamic_cast<const c10::Error*>(&error);
    std::cerr << (argc > 0 ? argv[0] : "trial") << ": "
              << (ours     ? ours->what()
                  : torchs ? torchs->what_without_backtrace()
                           : error.what())
              << '\n';
    return ours ? ours->exit_code() : 1;
  }
}

}  // namespace detail
}  // namespace gannet
