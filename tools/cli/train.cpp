// gannet train: described here; gannet-train (train/main.cpp) runs it.
#include "cli/commands.h"
#include "train/options.h"

namespace gannet::cli {

void add_train(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "Train a model that was exported from Python, without C++");
  static train::Options shown;
  for (const train::OptionRow& row : train::option_rows()) {
    CLI::Option* option = row.text ? command->add_option(std::string("--") + row.name, shown.*row.text, row.meaning)
                                   : command->add_option(std::string("--") + row.name, shown.seq_len, row.meaning);
    option->type_name(row.value);
    if (row.is_required) option->required();
  }
  command->allow_extras();
}

}  // namespace gannet::cli
