// gannet doctor: reports on this machine, this installation, every plugin, and what would stop a
// run.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>

#include "base/format.h"
#include "base/text.h"
#include "cli/commands.h"
#include "doctor/report.h"

namespace gannet::cli {
namespace {

struct DoctorArguments {
  std::string config;
  int timeout = 60;
  bool report = false, json = false;
};

constexpr const char* kDoctorFooter =
    R"(Each plugin is tried in its own process: opened, checked, and constructed once as in a run. A plugin whose device is
not on this machine is a note. Anything that is broken, or would stop a plain run, is a problem.

Examples:
  gannet doctor
  gannet doctor --config ds_config.json
  gannet doctor --report --config ds_config.json > doctor.md

Exit code: 0 when all is well, 1 when there is a problem.)";

constexpr size_t kShownBytes = 64 << 10;

// Hides the values of keys such as "api_key" and "my_token".
void hide_keys(std::string& text) {
  std::string folded = lower(text);
  for (const char* word : {"api_key", "apikey", "token", "password", "secret"})
    for (size_t at = 0; (at = folded.find(word, at)) != std::string::npos; ++at) {
      const auto next = [&](size_t from) { return text.find_first_not_of(" \t\r\n", from); };
      const size_t colon = next(std::min(text.find('"', at), text.size() - 1) + 1);
      if (colon == std::string::npos || text[colon] != ':') continue;
      const size_t begin = next(colon + 1);
      if (begin == std::string::npos || text[begin] != '"') continue;
      const size_t end = std::min(text.find('"', begin + 1), text.size());
      for (std::string* each : {&text, &folded}) each->replace(begin + 1, end - begin - 1, "<hidden>");
    }
}

// The config file's text for a report, without API keys and without this machine's names and
// paths.
std::string config_block(const doctor::Diagnosis& diagnosis, const std::string& file) {
  std::error_code failed;
  if (!std::filesystem::is_regular_file(file, failed)) return "";
  std::ifstream in(file, std::ios::binary);
  std::string text(kShownBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  const bool is_cut = text.size() > kShownBytes;
  if (is_cut) text.resize(kShownBytes);
  for (char& letter : text)
    if (static_cast<unsigned char>(letter) < ' ' && letter != '\n' && letter != '\t') letter = letter == '\r' ? ' ' : '?';
  hide_keys(text);
  text = doctor::without_secrets(text, diagnosis.secrets);
  std::string fence = "```";
  while (text.find(fence) != std::string::npos) fence += '`';
  return formatted("\n**{}**{}\n\n{}jsonc\n{}{}{}\n", doctor::without_secrets(file, diagnosis.secrets),
                   is_cut ? ", its first 64 KiB" : "", fence, text, text.ends_with('\n') ? "" : "\n", fence);
}

void doctor(const DoctorArguments& arguments) {
  doctor::Diagnosis diagnosis;
  doctor::look_at_software(diagnosis);
  doctor::look_at_machine(diagnosis);
  doctor::look_at_plugins(diagnosis, std::chrono::seconds(arguments.timeout));
  if (!arguments.config.empty()) doctor::look_at_config(diagnosis, arguments.config);
  std::cout << (arguments.json     ? doctor::as_json(diagnosis)
                : arguments.report ? doctor::as_markdown(diagnosis) + config_block(diagnosis, arguments.config)
                                   : doctor::as_text(diagnosis))
            << std::flush;
  if (!diagnosis.problems.empty()) throw CLI::RuntimeError(1);
}

}  // namespace

void add_doctor(CLI::App& app) {
  auto arguments = std::make_shared<DoctorArguments>();
  auto* command =
      app.add_subcommand("doctor", "Check this machine, this installation and every plugin, and report what would stop a run");
  command->add_option("--config", arguments->config, "also check this ds_config.json, with the plugins that it names")
      ->type_name("FILE");
  auto* report = command->add_flag("--report", arguments->report,
                                   "as Markdown to paste into an issue, with the config, without names of host and user");
  command->add_flag("--json", arguments->json, "as one JSON object")->excludes(report);
  command->add_option("--timeout", arguments->timeout, "time limit for one plugin file, in seconds (60)")
      ->check(CLI::Range(1, 3600))
      ->type_name("SECONDS");
  command->footer(kDoctorFooter);
  command->callback([arguments] { doctor(*arguments); });
}

}  // namespace gannet::cli
