// gannet report METRICS.jsonl [-o report.html] | --text: the report of a training run, from its
// metrics file.
#include "report/report.h"

#include <gannet/error.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>

#include "base/format.h"
#include "cli/commands.h"

namespace gannet::cli {
namespace {

struct ReportArguments {
  std::string metrics, out = "report.html";
  bool as_text = false;
};

void write_page(const std::string& path, const std::string& html) {
  if (std::filesystem::is_directory(path))
    throw Error(ErrorCode::kIo, formatted("cannot write the report to {}: it is a folder", path),
                formatted("name a file with -o, as {}/report.html", path));
  errno = 0;
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(html.data(), static_cast<std::streamsize>(html.size()));
  out.close();
  if (!out)
    throw Error(ErrorCode::kIo,
                formatted("cannot write the report to {}{}", path, errno ? std::string(": ") + std::strerror(errno) : ""),
                "name a file with -o, in a folder that exists and can be written");
}

void make_report(const ReportArguments& arguments) {
  const report::Report report(arguments.metrics);
  for (const std::string& note : report.records().notes) std::cerr << "gannet: " << report.records().path << ": " << note << '\n';
  if (arguments.as_text) {
    std::cout << report.text();
    return;
  }
  std::error_code error;
  if (std::filesystem::equivalent(arguments.out, report.records().path, error))
    throw Error(ErrorCode::kArgument, formatted("the report would be written over the metrics file {}", arguments.out),
                "name another file with -o");
  write_page(arguments.out, report.html());
  std::cout << arguments.out << '\n';
  for (const std::string& line : report.summary()) std::cout << "  " << line << '\n';
}

}  // namespace

void add_report(CLI::App& app) {
  auto arguments = std::make_shared<ReportArguments>();
  CLI::App* command = app.add_subcommand("report", "Make one HTML page, or a summary for the terminal, of a run's metrics file.");
  command
      ->add_option("metrics", arguments->metrics, "the metrics file (config: gannet.metrics.path), or the folder that it is in")
      ->required();
  auto* out = command->add_option("-o,--output", arguments->out, "the page to write")->capture_default_str();
  command->add_flag("--text", arguments->as_text, "print a summary and the loss as a line of blocks, and write no page")
      ->excludes(out);
  command->callback([arguments] { make_report(*arguments); });
}

}  // namespace gannet::cli
