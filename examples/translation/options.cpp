#include "options.h"

#include <gannet/error.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <functional>

namespace translation {
namespace {

using gannet::Error;
using gannet::ErrorCode;
namespace fs = std::filesystem;

enum class OptionEffect { kWorks, kNone, kRefused };

struct OptionRow {
  const char* name;
  const char* value;  // for example "TEXT" or "N"; "" for flags
  OptionEffect effect;
  const char* meaning;  // or the reason why it has no effect or is refused
  std::function<void(Options&, const std::string&)> set = {};
};

int64_t positive(const std::string& name, const std::string& text) {
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end || number < 1)
    throw Error(ErrorCode::kArgument, "--" + name + " must be an integer of at least 1, found '" + text + "'");
  return number;
}

bool is_on(const std::string& name, const std::string& text) {
  for (const char* yes : {"", "true", "True", "1"})
    if (text == yes) return true;
  for (const char* no : {"false", "False", "0"})
    if (text == no) return false;
  throw Error(ErrorCode::kArgument, "--" + name + " must be true or false, found '" + text + "'");
}

OptionRow text(const char* name, std::string Options::* member, const char* meaning) {
  return {name, "TEXT", OptionEffect::kWorks, meaning, [member](Options& o, const std::string& given) { o.*member = given; }};
}
template <class Number>
OptionRow number(const char* name, Number Options::* member, const char* meaning) {
  return {name, "N", OptionEffect::kWorks, meaning,
          [member, name](Options& o, const std::string& given) { o.*member = positive(name, given); }};
}
OptionRow flag(const char* name, bool Options::* member, const char* meaning) {
  return {name, "", OptionEffect::kWorks, meaning,
          [member, name](Options& o, const std::string& given) { o.*member = is_on(name, given); }};
}

const std::vector<OptionRow>& rows() {
  constexpr OptionEffect kNone = OptionEffect::kNone, kRefused = OptionEffect::kRefused;
  constexpr const char* kNoDownload = "nothing is downloaded: model_name_or_path and dataset_name are folders";
  static const std::vector<OptionRow>& table = *new std::vector<OptionRow>{
      text("model_name_or_path", &Options::model_name_or_path, "folder of config.json, weights and, as a rule, spiece.model"),
      text("tokenizer_name", &Options::tokenizer_name,
           "folder with spiece.model, or the file; default: the model's, else one that is trained on the pairs"),
      text("source_lang", &Options::source_lang, "language to translate from, as the files name it: en"),
      text("target_lang", &Options::target_lang, "language to translate to"),
      text("source_prefix", &Options::source_prefix, "put before each source: \"translate English to Romanian: \""),
      text("dataset_name", &Options::dataset_name, "folder with train.json, validation.json and test.json"),
      text("dataset_config_name", &Options::dataset_config_name, "the folder in it: ro-en"),
      text("dataset_config", &Options::dataset_config_name, "the same"),
      text("train_file", &Options::train_file, "pairs to train on, in JSON lines; instead of the folder's"),
      text("validation_file", &Options::validation_file, "pairs to evaluate on"),
      text("test_file", &Options::test_file, "pairs to predict"),
      number("max_source_length", &Options::max_source_length, "longest source in tokens; more is cut off. Default 1024"),
      number("max_target_length", &Options::max_target_length, "longest target in tokens; more is cut off. Default 128"),
      number("val_max_target_length", &Options::val_max_target_length,
             "longest target of an evaluation, and generated text; default max_target_length"),
      number("generation_max_length", &Options::generation_max_length, "longest generated text, in its place"),
      number("num_beams", &Options::num_beams, "beams of a generated text; default 1: the likeliest token each time"),
      number("generation_num_beams", &Options::generation_num_beams, "the same, where num_beams is not given"),
      number("max_predict_samples", &Options::max_predict_samples, "use this many of the test pairs"),
      flag("pad_to_max_length", &Options::pad_to_max_length, "pad each sample to the longest length, not to its batch's"),
      flag("ignore_pad_token_for_loss", &Options::ignore_pad_token_for_loss, "padding of targets does not count; default true"),
      flag("predict_with_generate", &Options::predict_with_generate,
           "evaluations and predictions generate texts: BLEU, exact matches, lengths"),
      flag("overwrite_output_dir", &Options::overwrite_output_dir, "train afresh though output_dir has files"),
      {"config_name", "TEXT", kRefused, "config.json is beside the weights in model_name_or_path; change it there"},
      {"forced_bos_token", "TEXT", kRefused, "T5's texts begin with decoder_start_token_id of config.json"},
      {"generation_config", "TEXT", kRefused, "give num_beams and generation_max_length"},
      {"cache_dir", "TEXT", kNone, kNoDownload},
      {"model_revision", "TEXT", kNone, kNoDownload},
      {"token", "TEXT", kNone, kNoDownload},
      {"use_auth_token", "", kNone, kNoDownload},
      {"trust_remote_code", "", kNone, "no code of a model's folder is run"},
      {"use_fast_tokenizer", "", kNone, "SentencePiece is the only tokenizer"},
      {"overwrite_cache", "", kNone, "pairs are read and cut at each start"},
      {"preprocessing_num_workers", "N", kNone, "pairs are cut on one thread"},
      {"sortish_sampler", "", kNone, "samples are not grouped by length"},
  };
  return table;
}

const OptionRow* find(const std::string& name) {
  const auto row = std::find_if(rows().begin(), rows().end(), [&](const OptionRow& one) { return name == one.name; });
  return row == rows().end() ? nullptr : &*row;
}

std::string underscored(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// Checks the options against each other, once all values are set.
void check(const Options& options, const gannet::TrainingArguments& arguments, std::vector<std::string>& mistakes) {
  if (!arguments.do_train && !arguments.do_eval && !arguments.do_predict)
    mistakes.push_back("there is nothing to do: give --do_train, --do_eval or --do_predict");
  if (options.model_name_or_path.empty()) mistakes.push_back("--model_name_or_path is missing: the folder of a T5");
  if (options.source_lang.empty() || options.target_lang.empty())
    mistakes.push_back("--source_lang and --target_lang are needed: which texts of a pair are which");
  if (!options.dataset_config_name.empty() && options.dataset_name.empty())
    mistakes.push_back("--dataset_config_name is a folder in --dataset_name, which is missing");
  const auto needs = [&](bool is_asked, const char* what, const std::string& file, const char* option) {
    if (is_asked && file.empty() && options.dataset_name.empty())
      mistakes.push_back(std::string("--") + what + " needs --" + option + ", or --dataset_name");
  };
  needs(arguments.do_train, "do_train", options.train_file, "train_file");
  needs(arguments.do_eval || arguments.eval_strategy != "no", "do_eval", options.validation_file, "validation_file");
  needs(arguments.do_predict, "do_predict", options.test_file, "test_file");
  if (options.predict_with_generate && options.new_tokens() < 1)
    mistakes.push_back("a generated text has no room: --val_max_target_length counts the decoder's first token, give at least 2");
}

}  // namespace

int64_t Options::new_tokens() const {
  return generation_max_length.value_or(val_max_target_length.value_or(max_target_length)) - 1;
}

std::vector<std::string> option_names() {
  std::vector<std::string> names;
  for (const OptionRow& row : rows()) names.push_back(std::string("--") + row.name);
  return names;
}

Options parse_options(int argc, char** argv, const gannet::TrainingArguments& arguments) {
  Options options;
  std::vector<std::string> mistakes;
  for (int i = 1; i < argc;) {
    const std::string word = argv[i++];
    const size_t equals = word.find('=');
    const std::string name = underscored(word.substr(2, equals == std::string::npos ? equals : equals - 2));
    std::optional<std::string> value;
    if (equals != std::string::npos) value = word.substr(equals + 1);
    // parse_training_arguments leaves only this table's options, and the words that follow each
    // of them.
    const auto is_option = [](const std::string& one) {
      return one.starts_with("--") && find(underscored(one.substr(2, one.find('=') - 2)));
    };
    std::vector<std::string> more;
    while (i < argc && !is_option(argv[i])) more.push_back(argv[i++]);
    if (!value && !more.empty()) {
      value = more[0];
      more.erase(more.begin());
    }
    const OptionRow& row = *find(name);
    if (!more.empty())
      mistakes.push_back("--" + name + " takes one value, found also '" + more[0] + "': put quotes around a text with spaces");
    else if (!value && *row.value)
      mistakes.push_back("--" + name + " takes a value");
    else if (row.effect == OptionEffect::kRefused)
      mistakes.push_back("--" + name + " is not built: " + row.meaning);
    else if (row.effect == OptionEffect::kNone)
      options.without_effect.push_back("--" + name + " has no effect here: " + row.meaning);
    else
      try {
        row.set(options, value.value_or(""));
      } catch (const Error& error) {
        mistakes.push_back(error.message());
      }
  }
  check(options, arguments, mistakes);
  if (mistakes.empty()) return options;
  std::string all = mistakes[0];
  for (size_t i = 1; i < mistakes.size(); ++i) all += "\n  " + mistakes[i];
  throw Error(ErrorCode::kArgument, all, "--help lists all options");
}

std::string options_help() {
  std::string help = "Options of this program:\n";
  for (const OptionRow& row : rows()) {
    std::string head = std::string("  --") + row.name + (*row.value ? std::string(" ") + row.value : "");
    head.resize(std::max<size_t>(head.size() + 2, 34), ' ');
    help += head +
            (row.effect == OptionEffect::kRefused ? "refused: "
             : row.effect == OptionEffect::kNone  ? "no effect: "
                                                  : "") +
            row.meaning + "\n";
  }
  return help;
}

std::string file_of(const Options& options, const std::string& split) {
  const std::string& named = split == "train"        ? options.train_file
                             : split == "validation" ? options.validation_file
                                                     : options.test_file;
  if (!named.empty()) return named;
  const fs::path folder = fs::path(options.dataset_name) / options.dataset_config_name;
  if (!fs::is_directory(folder))
    throw Error(ErrorCode::kNotFound, "dataset_name: there is no folder " + folder.string(),
                "nothing is downloaded: name a folder with train.json, validation.json and test.json");
  return folder / (split + ".json");
}

}  // namespace translation
