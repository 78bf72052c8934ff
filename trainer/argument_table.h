// Table behind TrainingArguments, one row per argument. A new argument needs a struct member and a
// row.
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
  bool is_open_below = false, is_open_above = false;  // the bound itself is excluded
  std::vector<std::string> choices = {};
  std::string otherwise = {};  // with choices: how to get any other one
  std::string text() const;    // "above 0", "0 to 1", "steps|epoch"
};

struct ArgumentRow {
  std::string name;
  std::string type;  // "boolean", "integer", "number", "text", "list", "dictionary"
  ArgumentRange range;
  ArgumentState state;
  std::string meaning;  // if the argument works
  std::string reason;   // otherwise: why not, and what to do instead
  bool is_optional = false;
  std::function<Value(const TrainingArguments&)> get;
  std::function<void(TrainingArguments&, const Value&)> set;  // Error(kArgument) for a wrong type or a value out of range
  Value fallback() const { return get(TrainingArguments{}); }
};

const std::vector<ArgumentRow>& rows();
const ArgumentRow* find(std::string_view name);  // null if there is none

// A name from older documentation. `apply` sets its current replacement.
struct FormerArgument {
  std::string name, meaning;
  bool is_flag = false;
  std::string today;  // the argument that it sets; "": none
  std::function<void(TrainingArguments&, const Value&)> apply;
};
const std::vector<FormerArgument>& formers();
const FormerArgument* find_former(std::string_view name);

std::vector<std::string> all_names();
// Records that an argument was given under any of its names.
void note_given(TrainingArguments& into, const std::string& name);
// Whether transformers' example scripts or its Seq2SeqTrainer read this name from the same file or
// command line.
bool is_of_a_script(std::string_view name);
// Explains a name that has no row: "; ..." or "".
std::string what_became_of(std::string_view name);
// Converts a command-line word to this row's type.
Value value_of(const ArgumentRow& row, const std::string& text);
// "null", "true", "5e-05", "[0.9]" as the docs and the messages show it.
std::string shown(const Value& value);
// "; did you mean 'x'?" or "".
std::string did_you_mean(std::string_view word, const std::vector<std::string>& programs_own = {});

// Defined in argument_files.cpp. Throw Error(kNotFound), or Error(kArgument) with file and line.
Dict read_file(const std::string& path);
Value parse_json(const std::string& text, const std::string& what);

// Checks that span several rows: strategies that never meet, values that exclude one another.
// Defined in argument_checks.cpp.
std::vector<std::string> contradictions(const TrainingArguments& arguments);

void apply(TrainingArguments& into, const std::string& name, const Value& value);

}  // namespace gannet::arguments
