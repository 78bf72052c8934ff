// gannet checkpoint export --format deepspeed | universal: a Gannet checkpoint as DeepSpeed's.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace gannet::cli {

// The options of `export` that only these formats have.
struct ToDeepSpeedArguments {
  int64_t stage = -1, ranks = -1, sub_group_size = 0;
  std::vector<std::string> renames, tied;
  void add_options(CLI::App& exporting);
  // Throws Error(kArgument) if one of them was given with another format.
  void refuse(const std::string& format) const;
};

bool is_deepspeed_format(const std::string& format);
void export_to_deepspeed(const std::string& folder, const std::string& tag, const std::string& out, const std::string& format,
                         const ToDeepSpeedArguments& arguments);

// Splits "FROM=TO" of the option `option`. Throws Error(kArgument) with `meaning` if it has no '='.
std::pair<std::string, std::string> parse_pair(const std::string& option, const std::string& text, const std::string& meaning);

}  // namespace gannet::cli
