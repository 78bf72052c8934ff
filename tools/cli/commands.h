// The commands of the `gannet` binary: each adds itself to the parser; a command's callback throws
// gannet::Error on failure.
#pragma once

#include <CLI/CLI.hpp>

namespace gannet::cli {

void add_bench(CLI::App& app);                                       // bench nvme
void add_checkpoint(CLI::App& app);                                  // checkpoint list | verify | show | export | import
void add_import(CLI::App& checkpoint);                               // checkpoint import
void show_pt(const std::string& path);                               // checkpoint show, for a torch.save file
bool show_foreign(const std::string& path, const std::string& tag);  // checkpoint show, for other formats; false: unknown format
void add_config(CLI::App& app);                                      // config check | resolve | keys
void add_doctor(CLI::App& app);                                      // doctor: what would stop a run
void add_estimate(CLI::App& app);                                    // estimate: memory for each ZeRO stage and offload
void add_model(CLI::App& app);                                       // model info | check: a model exported from Python
void add_pipeline(CLI::App& app);                                    // pipeline show: a step of a pipeline schedule
void add_plugins(CLI::App& app);                                     // plugins list | info
void add_report(CLI::App& app);                                      // report: a page or a summary of a metrics file
void add_run(CLI::App& app);                                         // run: starts ranks
void add_train(CLI::App& app);                                       // train: a model exported from Python, by gannet-train
// Removes the optional `--` between run's options and PROGRAM, at which the parser would otherwise
// end the command. Throws for an option with nothing after its "=".
void drop_separator(const CLI::App& app, std::vector<std::string>& arguments);
void add_shell(CLI::App& app);     // completion, help
void add_schedule(CLI::App& app);  // schedule: a schedule as CSV

}  // namespace gannet::cli
