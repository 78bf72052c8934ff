#include "train/options.h"

#include <gannet/error.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/format.h"
#include "base/text.h"

namespace gannet::train {
namespace {

// "--eval-data=x" is the option "eval_data", with the value "x".
std::string name_of(std::string_view word) {
  std::string name(word.substr(2, word.find('=') == std::string_view::npos ? std::string_view::npos : word.find('=') - 2));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

const OptionRow* find_row(std::string_view word) {
  if (!word.starts_with("--")) return nullptr;
  const auto& rows = option_rows();
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const OptionRow& row) { return name_of(word) == row.name; });
  return found == rows.end() ? nullptr : &*found;
}

void set(Options& options, const OptionRow& row, const std::string& value, std::vector<std::string>& mistakes) {
  if (row.text) {
    options.*row.text = value;
    return;
  }
  const auto [stop, error] = std::from_chars(value.data(), value.data() + value.size(), options.seq_len);
  if (error != std::errc() || stop != value.data() + value.size() || options.seq_len < 1)
    mistakes.push_back(formatted("--{} must be an integer of at least 1, found '{}'", row.name, printable(value)));
}

}  // namespace

const std::vector<OptionRow>& option_rows() {
  static const std::vector<OptionRow>& rows = *new std::vector<OptionRow>{
      {"model", "PATH", "the model: a folder that gannet_export wrote, or a TorchScript file", true, &Options::model},
      {"data", "PATH", "the samples: a folder of .npy files, a .safetensors file, or a file of tokens (.npy, .bin)", true,
       &Options::data},
      {"eval_data", "PATH", "samples for evaluation, of the same kinds", false, &Options::eval_data},
      {"seq_len", "N", "the tokens of a sample, where the data are a file of tokens", false, nullptr},
      {"items", "INPUT", "weigh each micro-batch by the entries of this input that are not -100, as 'labels'; default: all alike",
       false, &Options::items}};
  return rows;
}

std::vector<std::string> option_names() {
  std::vector<std::string> names;
  for (const OptionRow& row : option_rows()) names.push_back(formatted("--{}", row.name));
  return names;
}

Options parse_options(int argc, char** argv) {
  Options options;
  std::vector<std::string> mistakes;
  for (int i = 1; i < argc;) {
    const std::string word = argv[i++];
    const OptionRow* const row = find_row(word);
    if (!row) {
      mistakes.push_back(formatted("'{}' is not an option and no value of one", printable(word)));
      continue;
    }
    std::optional<std::string> value;
    if (const size_t equals = word.find('='); equals != std::string::npos)
      value = word.substr(equals + 1);
    else if (i < argc && !find_row(argv[i]))
      value = argv[i++];
    if (!value || value->empty())
      mistakes.push_back(formatted("--{} takes a value", row->name));
    else
      set(options, *row, *value, mistakes);
  }
  for (const OptionRow& row : option_rows())
    if (row.is_required && (options.*row.text).empty())
      mistakes.push_back(formatted("--{} is missing: {}", row.name, row.meaning));
  if (!mistakes.empty()) throw Error(ErrorCode::kArgument, join(mistakes, "\n  "), "`gannet train --help` lists all options");
  return options;
}

}  // namespace gannet::train
