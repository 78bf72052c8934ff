// Argument values: their ranges, parsing of command-line words, text for messages, older spellings.
#include <gannet/error.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <sstream>

#include "argument_table.h"
#include "common/nearest.h"
#include "convert_argument.h"

namespace gannet::arguments {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::optional<double> number_of(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

// Formats a bound of a range; whole numbers have no ".0".
std::string bound(double number) {
  return number == std::floor(number) && std::abs(number) < 1e9 ? std::to_string(static_cast<int64_t>(number))
                                                                : shown(Value(number));
}

void set(TrainingArguments& arguments, const char* name, const Value& value) { apply(arguments, name, value); }

}  // namespace

std::string shown(const Value& value) { return value.is_string() ? value.as_string() : value.to_json(); }

void fail_type(const std::string& name, const char* wanted, const Value& found) {
  std::string text = "argument " + name + " takes " + wanted + ", found " + shown(found);
  if (found.is_string())
    text = "argument " + name + " takes " + wanted + ", found the text \"" + found.as_string() + "\"" +
           (number_of(found.as_string()) ? " (write the number without quotes)" : "");
  throw Error(ErrorCode::kArgument, text);
}

std::string ArgumentRange::text() const {
  std::string line;
  if (!choices.empty()) {
    for (const auto& choice : choices) line += (line.empty() ? "" : ", ") + choice;
    return line;
  }
  if (std::isfinite(least)) line = (is_open_below ? "above " : "from ") + bound(least);
  if (std::isfinite(most)) line += (line.empty() ? "" : ", ") + std::string(is_open_above ? "below " : "up to ") + bound(most);
  return line;
}

void check_range(const std::string& name, const ArgumentRange& range, const Value& value) {
  if (value.is_list()) {
    for (const Value& part : value.as_list()) check_range(name, range, part);
    return;
  }
  bool is_inside = true;
  if (value.is_number()) {
    const double number = value.as_number();
    is_inside = (range.is_open_below ? number > range.least : number >= range.least) &&
                (range.is_open_above ? number < range.most : number <= range.most);
  } else if (value.is_string() && !range.choices.empty()) {
    is_inside = std::find(range.choices.begin(), range.choices.end(), value.as_string()) != range.choices.end();
  }
  if (!is_inside)
    throw Error(ErrorCode::kArgument, "argument " + name + " is " + shown(value) + ", allowed: " + range.text() +
                                          (range.otherwise.empty() ? "" : "; " + range.otherwise));
}

Value value_of(const ArgumentRow& row, const std::string& text) {
  if (row.type == "text") return row.name == "resume_from_checkpoint" && lower(text) == "true" ? Value("last") : Value(text);
  if (row.is_optional && (lower(text) == "none" || lower(text) == "null")) return {};
  if (row.type == "boolean") {
    const std::string word = lower(text);
    if (word == "true" || word == "yes" || word == "t" || word == "y" || word == "1") return true;
    if (word == "false" || word == "no" || word == "f" || word == "n" || word == "0") return false;
    return text;
  }
  if (row.type == "integer" || row.type == "number") {
    const auto number = number_of(text);
    if (!number) return text;
    if (*number == std::floor(*number) && std::abs(*number) < 9e15) return static_cast<int64_t>(*number);
    return *number;
  }
  if (row.type == "dictionary") return parse_json(text, row.name);
  return text;
}

const ArgumentRow* find(std::string_view name) {
  for (const ArgumentRow& row : rows())
    if (row.name == name) return &row;
  return nullptr;
}

const FormerArgument* find_former(std::string_view name) {
  for (const FormerArgument& former : formers())
    if (former.name == name) return &former;
  return nullptr;
}

const std::vector<FormerArgument>& formers() {
  const auto renamed = [](const char* now) {
    return [now](TrainingArguments& arguments, const Value& value) { set(arguments, now, value); };
  };
  const auto nothing = [](TrainingArguments&, const Value&) {};
  const auto chosen = [](const std::string& name, std::vector<std::string> choices, const Value& value) {
    const std::string word = ArgumentConversion<std::string>::from(name, value);
    check_range(name, {.choices = std::move(choices)}, value);
    return word;
  };
  const auto backend = [chosen](const char* name) {
    return [chosen, name](TrainingArguments& arguments, const Value& value) {
      arguments.fp16_backend = chosen(name, {"auto", "amp", "cuda_amp", "cpu_amp", "apex"}, value);
    };
  };
  static const std::vector<FormerArgument>& table = *new std::vector<FormerArgument>{
      {"warmup_ratio", "warmup_steps below 1", false, "warmup_steps",
       [](TrainingArguments& arguments, const Value& value) {
         check_range("warmup_ratio", {.least = 0, .most = 1}, ArgumentConversion<double>::from("warmup_ratio", value));
         // A ratio of 1 would not be treated as a fraction, and only the run knows the number of
         // steps, so use the largest double below 1.
         if (arguments.warmup_steps == 0) arguments.warmup_steps = std::min(value.as_number(), std::nextafter(1.0, 0.0));
       }},
      {"evaluation_strategy", "eval_strategy", false, "eval_strategy", renamed("eval_strategy")},
      {"per_gpu_train_batch_size", "per_device_train_batch_size", false, "per_device_train_batch_size",
       renamed("per_device_train_batch_size")},
      {"per_gpu_eval_batch_size", "per_device_eval_batch_size", false, "per_device_eval_batch_size",
       renamed("per_device_eval_batch_size")},
      {"no_cuda", "use_cpu", true, "use_cpu", renamed("use_cpu")},
      {"fp16_backend", "fp16; with apex, fp16 is the config's amp section", false, "fp16_backend", backend("fp16_backend")},
      {"half_precision_backend", "fp16_backend", false, "fp16_backend", backend("half_precision_backend")},
      {"fp16_opt_level", "the config's amp.opt_level, with fp16_backend apex", false, "fp16_opt_level",
       [chosen](TrainingArguments& arguments, const Value& value) {
         arguments.fp16_opt_level = chosen("fp16_opt_level", {"O0", "O1", "O2", "O3"}, value);
       }},
      {"overwrite_output_dir", "nothing: a run without resume_from_checkpoint starts afresh", true, "", nothing},
      {"logging_dir", "nothing: TensorBoard's files are in output_dir/runs", false, "", nothing},
      {"save_safetensors", "nothing: weights are always saved as safetensors", true, "", nothing},
  };
  return table;
}

void note_given(TrainingArguments& into, const std::string& name) {
  const FormerArgument* const former = find_former(name);
  const std::string today = former ? former->today : name;
  if (find(today) && std::find(into.given.begin(), into.given.end(), today) == into.given.end()) into.given.push_back(today);
}

bool is_of_a_script(std::string_view name) {
  static constexpr std::array kNames = {
      // arguments of the model and the data
      "model_name_or_path", "model_type", "config_name", "config_overrides", "tokenizer_name", "tokenizer_revision", "cache_dir",
      "use_fast_tokenizer", "model_revision", "token", "use_auth_token", "trust_remote_code", "torch_dtype", "dtype",
      "low_cpu_mem_usage", "ignore_mismatched_sizes", "task_name", "dataset_name", "dataset_config_name", "train_file",
      "validation_file", "test_file", "validation_split_percentage", "streaming", "overwrite_cache", "preprocessing_num_workers",
      "keep_linebreaks", "block_size", "line_by_line", "mlm_probability", "max_seq_length", "pad_to_max_length",
      "max_train_samples", "max_eval_samples", "max_predict_samples", "text_column", "summary_column", "text_column_name",
      "label_column_name", "lang", "source_lang", "target_lang", "source_prefix", "forced_bos_token", "max_source_length",
      "max_target_length", "val_max_target_length", "num_beams", "ignore_pad_token_for_loss", "resize_position_embeddings",
      // arguments of Seq2SeqTrainingArguments
      "predict_with_generate", "generation_max_length", "generation_num_beams", "generation_config", "sortish_sampler"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

std::string what_became_of(std::string_view name) {
  if (is_of_a_script(name))
    return "; it belongs to a training script of transformers, not to its TrainingArguments: a program reads its own options "
           "itself (ParseOptions::leave on the command line, another file)";
  if (name == "group_by_length")
    return "; transformers 5 has it as train_sampling_strategy group_by_length; here samples come in the order random or "
           "sequential";
  return "";
}

std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const ArgumentRow& row : rows()) names.push_back(row.name);
  for (const FormerArgument& former : formers()) names.push_back(former.name);
  return names;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& programs_own) {
  std::vector<std::string> names = all_names();
  for (const std::string& option : programs_own) names.push_back(option.substr(option.find_first_not_of('-')));
  return common::did_you_mean(word, names);
}

void apply(TrainingArguments& into, const std::string& name, const Value& value) {
  if (const ArgumentRow* row = find(name)) return row->set(into, value);
  if (const FormerArgument* former = find_former(name)) return former->apply(into, value);
  const std::string former = what_became_of(name);
  throw Error(ErrorCode::kArgument, "unknown argument '" + name + "'" + (former.empty() ? did_you_mean(name) : former));
}

}  // namespace gannet::arguments
