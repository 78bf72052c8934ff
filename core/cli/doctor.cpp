// gannet doctor: this machine, this installation, every plugin, and what would stop a run.
#include <iostream>
#include <memory>

#include "cli/commands.h"
#include "cli/doctor/report.h"

namespace gannet::cli {
namespace {

struct Arguments {
  std::string config;
  int timeout = 60;
  bool report = false, json = false;
};

constexpr const char* kFooter =
    R"(A plugin is tried in a process of its own: opened, checked, and made once as a run would make it. What only
waits for a device that this machine lacks is a note; what is broken, or would stop a plain run, is a problem.

Examples:
  gannet doctor
  gannet doctor --config ds_config.json
  gannet doctor --report > doctor.md

Exit code: 0 when all is well, 1 when there is a problem.)";

void doctor(const Arguments& arguments) {
  Diagnosis diagnosis;
  look_at_software(diagnosis);
  look_at_machine(diagnosis);
  look_at_plugins(diagnosis, std::chrono::seconds(arguments.timeout));
  if (!arguments.config.empty()) look_at_config(diagnosis, arguments.config);
  std::cout << (arguments.json     ? as_json(diagnosis)
                : arguments.report ? as_markdown(diagnosis)
                                   : as_text(diagnosis))
            << std::flush;
  if (!diagnosis.problems.empty()) throw CLI::RuntimeError(1);
}

}  // namespace

void add_doctor(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  auto* command =
      app.add_subcommand("doctor", "Look over this machine, this installation and every plugin, and say what would stop a run");
  command->add_option("--config", arguments->config, "also check this ds_config.json, with the plugins that it names")
      ->type_name("FILE");
  auto* report =
      command->add_flag("--report", arguments->report, "as Markdown to paste into an issue, without names of host and user");
  command->add_flag("--json", arguments->json, "as one JSON object")->excludes(report);
  command->add_option("--timeout", arguments->timeout, "seconds that trying one plugin file may take (60)")
      ->check(CLI::Range(1, 3600))
      ->type_name("SECONDS");
  command->footer(kFooter);
  command->callback([arguments] { doctor(*arguments); });
}

}  // namespace gannet::cli
