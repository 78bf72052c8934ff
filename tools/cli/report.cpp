// gannet report METRICS.jsonl [MORE.jsonl...] [-o report.html] | --text: the report of a training run
// from its metrics file, or of several runs over each other.
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
#include "report/compare.h"

namespace gannet::cli {
namespace {

struct ReportArguments {
  std::vector<std::string> metrics;
  std::string out = "report.html";
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

void print_notes(const report::Records& records) {
  for (const std::string& note : records.notes) std::cerr << "gannet: " << records.path << ": " << note << '\n';
}

void check_output(const std::string& out, const report::Records& records) {
  std::error_code error;
  if (std::filesystem::equivalent(out, records.path, error))
    throw Error(ErrorCode::kArgument, formatted("the report would be written over the metrics file {}", out),
                "name another file with -o");
}

// Page is report::Report or report::Comparison.
template <typename Page>
void write_or_print(const ReportArguments& arguments, const Page& page) {
  if (arguments.as_text) {
    std::cout << page.text();
    return;
  }
  write_page(arguments.out, page.html());
  std::cout << arguments.out << '\n';
  for (const std::string& line : page.summary()) std::cout << "  " << line << '\n';
}

void make_report(const ReportArguments& arguments) {
  if (arguments.metrics.size() == 1) {
    const report::Report report(arguments.metrics[0]);
    print_notes(report.records());
    if (!arguments.as_text) check_output(arguments.out, report.records());
    return write_or_print(arguments, report);
  }
  const report::Comparison comparison(arguments.metrics);
  for (const report::ComparedRun& run : comparison.runs()) {
    print_notes(run.records);
    if (!arguments.as_text) check_output(arguments.out, run.records);
  }
  write_or_print(arguments, comparison);
}

}  // namespace

void add_report(CLI::App& app) {
  auto arguments = std::make_shared<ReportArguments>();
  CLI::App* command = app.add_subcommand(
      "report",
      "Make one HTML page, or a summary for the terminal, of a run's metrics file; several runs are drawn over each other.");
  command
      ->add_option("metrics", arguments->metrics,
                   "the metrics file (config: gannet.metrics.path), or the folder that it is in; up to 6, to compare runs")
      ->required();
  auto* out = command->add_option("-o,--output", arguments->out, "the page to write")->capture_default_str();
  command->add_flag("--text", arguments->as_text, "print a summary and the loss as a line of blocks, and write no page")
      ->excludes(out);
  command->callback([arguments] { make_report(*arguments); });
}

}  // namespace gannet::cli
