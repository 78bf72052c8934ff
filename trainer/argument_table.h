// The table behind TrainingArguments, one row per argument. A new argument needs a member of the
// struct and a row.
#pragma once

#include <gannet/training_arguments.h>

#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace gannet::arguments {

enum class ArgumentState { kWorks, kRefused, kNoEffect };

struct ArgumentRange {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool is_open_below = false, is_open_above = false;  // whether the bound itself is excluded
  std::vector<std::string> choices = {};
  std::string otherwise = {};  // with choices: how to get a value that is not among them
  std::string text() const;    // "above 0", "from 0, up to 1", "steps, epoch"
};

struct ArgumentRow {
  std::string name;
  std::string type;  // "boolean", "integer", "number", "text", "list", "dictionary"
  ArgumentRange range;
  ArgumentState state;
  std::string meaning;  // what the argument does, if it works
  std::string reason;   // otherwise: why it does not work, and what to do instead
  bool is_optional = false;
  std::function<Value(const TrainingArguments&)> get;
  std::function<void(TrainingArguments&, const Value&)> set;  // throws Error(kArgument) for a wrong type or a value out of range
  Value fallback() const { return get(TrainingArguments{}); }
};

const std::vector<ArgumentRow>& rows();
const ArgumentRow* find(std::string_view name);  // null if there is no such argument

// A name from older documentation. `apply` sets its current replacement.
struct FormerArgument {
  std::string name, meaning;
  bool is_flag = false;
  std::string today;  // name of the argument that it sets; "" if it sets none
  std::function<void(TrainingArguments&, const Value&)> apply;
};
const std::vector<FormerArgument>& formers();
const FormerArgument* find_former(std::string_view name);

std::vector<std::string> all_names();
// Records that an argument was given, under any of its names.
void note_given(TrainingArguments& into, const std::string& name);
// Whether transformers' example scripts or its Seq2SeqTrainer read this name from the same file or
// command line.
bool is_of_a_script(std::string_view name);
// Returns "; ..." with an explanation of a name that has no row, or "".
std::string what_became_of(std::string_view name);
// Converts a command-line word to this row's type.
Value value_of(const ArgumentRow& row, const std::string& text);
// Formats a value as the docs and the messages show it: "null", "true", "5e-05", "[0.9]".
std::string shown(const Value& value);
// Returns "; did you mean 'x'?" or "".
std::string did_you_mean(std::string_view word, const std::vector<std::string>& programs_own = {});

// The next two are defined in argument_files.cpp. They throw Error(kArgument), with file and line if
// the text cannot be parsed; read_file() also throws Error(kNotFound).
Dict read_file(const std::string& path);
Value parse_json(const std::string& text, const std::string& what);

// Finds contradictions between rows: incompatible strategies, mutually exclusive values.
// Defined in argument_checks.cpp.
std::vector<std::string> contradictions(const TrainingArguments& arguments);

void apply(TrainingArguments& into, const std::string& name, const Value& value);

}  // namespace gannet::arguments
