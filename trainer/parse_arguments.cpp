// Parses the command line and files into TrainingArguments. Collects all mistakes, so that one run
// shows them together.
#include <gannet/error.h>
#include <gannet/initialize.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <utility>

#include "argument_table.h"

namespace gannet {
namespace {

using arguments::ArgumentRow;
using arguments::FormerArgument;

bool is_option(const std::string& word) {
  return word.size() > 2 && word.starts_with("--") && std::isalpha(static_cast<unsigned char>(word[2]));
}

bool is_file_name(const std::string& word) {
  const std::string extension = std::filesystem::path(word).extension();
  return extension == ".json" || extension == ".yaml" || extension == ".yml";
}

std::string underscored(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// Collects errors and raises them together as one.
class CollectedMistakes {
 public:
  template <class F>
  void collect(F&& body) {
    try {
      body();
    } catch (const Error& error) {
      lines_.push_back(error.message());
    }
  }
  void add(std::string line) { lines_.push_back(std::move(line)); }
  void raise() const {
    if (lines_.empty()) return;
    std::string all = lines_[0];
    for (size_t i = 1; i < lines_.size(); ++i) all += "\n  " + lines_[i];
    throw Error(ErrorCode::kArgument, all, "--help lists all arguments, docs/training_arguments.md says what each does");
  }

 private:
  std::vector<std::string> lines_;
};

struct CommandWords {
  std::vector<std::string> all;
  size_t at = 1;
  bool has_value() const { return at < all.size() && !is_option(all[at]); }
};

void take_former(TrainingArguments& into, const FormerArgument& former, std::optional<std::string> text, CommandWords& words) {
  if (!text && words.has_value()) text = words.all[words.at++];
  if (!text && !former.is_flag) throw Error(ErrorCode::kArgument, "argument " + former.name + " takes a value");
  // The type follows from the text, because these older names take either numbers or words.
  Value value = true;
  if (text) {
    ArgumentRow any;
    any.type = former.is_flag ? "boolean" : "number";
    value = arguments::value_of(any, *text);
    if (former.is_flag && !value.is_bool())
      throw Error(ErrorCode::kArgument, "argument " + former.name + " takes true or false, not '" + *text + "'");
  }
  former.apply(into, value);
}

void take(TrainingArguments& into, const ArgumentRow& row, std::optional<std::string> text, CommandWords& words) {
  if (row.type == "boolean") {
    if (!text && words.has_value()) text = words.all[words.at++];
    return row.set(into, text ? arguments::value_of(row, *text) : Value(true));
  }
  if (row.type == "list") {
    List values;
    if (text) values.push_back(*text);
    while (!text && words.has_value()) values.push_back(words.all[words.at++]);
    if (values.empty()) throw Error(ErrorCode::kArgument, "argument " + row.name + " takes a value");
    return row.set(into, values);
  }
  if (!text && words.at < words.all.size() && !is_option(words.all[words.at])) text = words.all[words.at++];
  if (!text) throw Error(ErrorCode::kArgument, "argument " + row.name + " takes a value");
  row.set(into, arguments::value_of(row, *text));
}

// Reports two spellings of one argument that have different values, because the order of the keys
// must not matter.
void check_spellings(const Dict& values, CollectedMistakes& mistakes, const std::string& where) {
  std::map<std::string, std::pair<std::string, Value>> first;  // the first spelling and its value, by current name
  for (const auto& [name, value] : values.entries()) {
    const FormerArgument* const former = arguments::find_former(name);
    // warmup_steps takes precedence over warmup_ratio, as in transformers.
    if (name == "warmup_ratio" || value.is_null() || (former && former->today.empty())) continue;
    const auto [known, is_first] = first.try_emplace(former ? former->today : name, name, value);
    const auto& [spelling, other] = known->second;
    if (!is_first && other != value)
      mistakes.add(where + "argument " + name + " is " + arguments::shown(value) + ", and " + spelling +
                   ", another name of it, is " + arguments::shown(other) + ": keep one");
  }
}

void apply_all(TrainingArguments& into, const Dict& values, CollectedMistakes& mistakes, const std::string& where) {
  check_spellings(values, mistakes, where);
  for (const auto& [name, value] : values.entries())
    mistakes.collect([&, name = name, value = value] {
      if (!value.is_null()) arguments::note_given(into, name);
      try {
        arguments::apply(into, name, value);
      } catch (const Error& error) {
        throw Error(error.code(), where + error.message(), error.next_step());
      }
    });
}

TrainingArguments checked(const Dict& values, const std::string& where) {
  TrainingArguments made;
  CollectedMistakes mistakes;
  apply_all(made, values, mistakes, where);
  mistakes.raise();
  made.check();
  return made;
}

}  // namespace

TrainingArguments training_arguments_from(const Dict& values) { return checked(values, ""); }

TrainingArguments training_arguments_from_file(const std::string& path) {
  return checked(arguments::read_file(path), path + ": ");
}

GivenArguments given_training_arguments(const std::string& path) {
  TrainingArguments made;
  CollectedMistakes mistakes;
  GivenArguments given;
  Dict values;
  const Dict in_file = arguments::read_file(path);
  for (const auto& [name, value] : in_file.entries()) {
    if (!arguments::is_of_a_script(name))
      values[name] = value;
    else
      given.notes.push_back("not taken: " + name + ", which belongs to a training script of transformers");
  }
  apply_all(made, values, mistakes, path + ": ");
  for (const std::string& one : arguments::contradictions(made)) mistakes.add(path + ": " + one);
  mistakes.raise();
  for (const auto& [name, value] : values.entries()) {
    if (value.is_null()) continue;
    const FormerArgument* const former = arguments::find_former(name);
    const std::string today = former ? former->today : name;
    const ArgumentRow* const row = arguments::find(today);
    if (row && row->state == arguments::ArgumentState::kRefused && row->get(made) != row->fallback())
      given.notes.push_back("the Trainer refuses argument " + today + ": " + row->reason);
    if (row)
      given.values[today] = row->get(made);
    else if (former && !today.empty())  // older mixed-precision arguments, which have no row
      given.values[today] = value;
  }
  return given;
}

TrainingArguments parse_training_arguments(int& argc, char** argv, const ParseOptions& options) {
  const ConfigArguments config = take_config_arguments(argc, argv);
  TrainingArguments made;
  CollectedMistakes mistakes;
  CommandWords words{std::vector<std::string>(argv, argv + argc)};
  std::vector<size_t> left = {0};
  if (argc > 1 && is_file_name(words.all[1])) {
    ++words.at;
    apply_all(made, arguments::read_file(words.all[1]), mistakes, words.all[1] + ": ");
  }
  while (words.at < words.all.size()) {
    const size_t place = words.at++;
    const std::string& word = words.all[place];
    if (!is_option(word)) {
      mistakes.add("'" + word + "' is neither an argument nor the value of one");
      continue;
    }
    const size_t equals = word.find('=');
    const std::string name = underscored(word.substr(2, equals == std::string::npos ? equals : equals - 2));
    std::optional<std::string> text;
    if (equals != std::string::npos) text = word.substr(equals + 1);

    const auto is_the_programs = [&](const std::string& own) { return underscored(own) == "__" + name; };
    if (std::any_of(options.leave.begin(), options.leave.end(), is_the_programs)) {
      left.push_back(place);
      while (!text && words.has_value()) left.push_back(words.at++);
    } else if (name == "help") {
      std::cout << training_arguments_help() << '\n' << ConfigArguments::help() << std::flush;
      std::exit(0);
    } else if (name == "completion") {
      if (!text && words.has_value()) text = words.all[words.at++];
      if (text && *text != "bash")
        mistakes.add("--completion knows bash, found '" + *text + "'");
      else {
        std::cout << training_arguments_completion(std::filesystem::path(words.all[0]).filename()) << std::flush;
        std::exit(0);
      }
    } else if (name == "arguments") {
      if (!text && words.has_value()) text = words.all[words.at++];
      if (!text)
        mistakes.add("--arguments takes a file");
      else
        mistakes.collect([&] {
          // The command line takes precedence, including the words before --arguments.
          TrainingArguments of_file;
          apply_all(of_file, arguments::read_file(*text), mistakes, *text + ": ");
          const Dict own = made.given_values();
          for (const auto& [key, value] : own.entries()) arguments::apply(of_file, key, value);
          for (const std::string& given : made.given) arguments::note_given(of_file, given);
          made = of_file;
        });
    } else if (const ArgumentRow* row = arguments::find(name)) {
      arguments::note_given(made, name);
      mistakes.collect([&] { take(made, *row, text, words); });
    } else if (const FormerArgument* former = arguments::find_former(name)) {
      arguments::note_given(made, name);
      mistakes.collect([&] { take_former(made, *former, text, words); });
    } else if (name.starts_with("no_") && arguments::find(name.substr(3)) && arguments::find(name.substr(3))->type == "boolean") {
      arguments::note_given(made, name.substr(3));
      arguments::find(name.substr(3))->set(made, false);
    } else {
      const std::string former = arguments::what_became_of(name);
      mistakes.add("unknown argument '" + word + "'" + (former.empty() ? arguments::did_you_mean(name, options.leave) : former));
      while (!text && words.has_value()) ++words.at;
    }
  }
  if (!config.config.empty()) made.deepspeed = config.config;
  made.config_overrides = config.overrides;
  mistakes.raise();
  made.check();

  for (size_t i = 0; i < left.size(); ++i) argv[i] = argv[left[i]];
  argc = static_cast<int>(left.size());
  argv[argc] = nullptr;
  if (options.handle_signals) made.stop = std::make_shared<StopSignals>();
  return made;
}

}  // namespace gannet
