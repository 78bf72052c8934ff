// Options of `gannet train` besides the training arguments.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gannet::train {

struct Options {
  std::string model;       // a folder that gannet_export wrote
  std::string data;        // files_dataset.h
  std::string eval_data;   // "": no evaluation
  int64_t seq_len = 0;     // 0: the data are not tokens
  std::string items = "";  // the input whose entries other than -100 are counted; "": each micro-batch counts 1
};

struct OptionRow {
  const char* name;
  const char* value;
  const char* meaning;
  bool is_required;
  std::string Options::* text;  // null: seq_len
};
// `gannet train --help` and completion (cli/train.cpp) show the same table.
const std::vector<OptionRow>& option_rows();

// For ParseOptions::leave.
std::vector<std::string> option_names();

// Reads what parse_training_arguments has left in the command line. Throws Error(kArgument) with all mistakes.
Options parse_options(int argc, char** argv);

}  // namespace gannet::train
