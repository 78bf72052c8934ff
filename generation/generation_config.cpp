#include <c10/util/StringUtil.h>
#include <gannet/error.h>
#include <gannet/generate.h>
#include <gannet/log.h>
#include <gannet/model_config.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

namespace gannet {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "generation_config.json";

const std::set<std::string, std::less<>>& taken_keys() {
  static const std::set<std::string, std::less<>> keys = {
      "max_new_tokens", "max_length", "min_length",   "min_new_tokens",     "do_sample",
      "temperature",    "top_k",      "top_p",        "num_beams",          "length_penalty",
      "early_stopping", "use_cache",  "eos_token_id", "repetition_penalty", "no_repeat_ngram_size"};
  return keys;
}

// Whether the key is about file names, outputs, memory or speed, so that no value changes the
// text.
bool has_no_effect(std::string_view key) {
  static const std::set<std::string, std::less<>> keys = {"pad_token_id",
                                                          "bos_token_id",
                                                          "transformers_version",
                                                          "return_dict_in_generate",
                                                          "cache_implementation",
                                                          "cache_config",
                                                          "max_cache_len",
                                                          "low_memory",
                                                          "compile_config",
                                                          "disable_compile",
                                                          "return_legacy_cache",
                                                          "prefill_chunk_size",
                                                          "use_mtp",
                                                          "is_assistant"};
  return key.starts_with("_") || key.starts_with("output_") || keys.contains(key);
}

// Whether an unsupported key has a neutral value, one that changes nothing.
bool is_neutral(std::string_view key, const Value& value) {
  if (value.is_null() || (value.is_bool() && !value.as_bool())) return true;
  if (value.is_list()) return value.as_list().empty();
  if (value.is_dict()) return value.as_dict().entries().empty();
  if (!value.is_number()) return false;
  static const std::set<std::string, std::less<>> none_at_one = {"typical_p", "encoder_repetition_penalty",
                                                                 "num_return_sequences", "guidance_scale", "num_beam_groups"};
  static const std::set<std::string, std::less<>> none_at_zero = {
      "encoder_no_repeat_ngram_size", "diversity_penalty", "penalty_alpha", "epsilon_cutoff", "eta_cutoff", "min_p"};
  return (none_at_one.contains(key) && value.as_number() == 1) || (none_at_zero.contains(key) && value.as_number() == 0);
}

// Whether the key belongs to generate(). Older versions of transformers store such keys in
// config.json among the model's own keys.
bool is_of_generation(std::string_view key) {
  static const std::set<std::string, std::less<>> keys = {"typical_p",
                                                          "encoder_repetition_penalty",
                                                          "encoder_no_repeat_ngram_size",
                                                          "num_beam_groups",
                                                          "diversity_penalty",
                                                          "bad_words_ids",
                                                          "forced_bos_token_id",
                                                          "forced_eos_token_id",
                                                          "suppress_tokens",
                                                          "begin_suppress_tokens",
                                                          "num_return_sequences",
                                                          "exponential_decay_length_penalty",
                                                          "penalty_alpha"};
  return keys.contains(key);
}

std::optional<std::string> path_of(const std::string& folder, const char* name) {
  std::error_code code;
  const std::string path = (fs::path(folder) / name).string();
  return fs::exists(path, code) ? std::optional(path) : std::nullopt;
}

// Whether `value` equals the decoder's first token in config.json, which the model uses. A
// different token would start a different text.
bool begins_as_the_model(const std::string& folder, const Value& value) {
  const auto path = path_of(folder, "config.json");
  if (!path || !value.is_int()) return false;
  const ModelConfig model = ModelConfig::read(*path);
  return value.as_int() == model.integer("decoder_start_token_id", model.integer("pad_token_id", 0));
}

std::vector<std::string> not_taken_of(const std::string& folder, const ModelConfig& json, bool is_generation_config) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.values().entries()) {
    if (key == "early_stopping" && value.is_string()) keys.push_back(key);  // "never"
    if (taken_keys().contains(key) || has_no_effect(key) || is_neutral(key, value)) continue;
    if (!is_generation_config && !is_of_generation(key)) continue;
    if (key == "decoder_start_token_id" && begins_as_the_model(folder, value)) continue;
    keys.push_back(key);
  }
  return keys;
}

std::vector<int64_t> stop_tokens_of(const ModelConfig& json) {
  const Value* const found = json.find("eos_token_id");
  if (!found) return {};
  if (!found->is_list()) return {json.integer("eos_token_id", 0)};
  std::vector<int64_t> tokens;
  for (const Value& one : found->as_list()) {
    if (!one.is_int())
      throw Error(ErrorCode::kConfig, c10::str(json.where(), ": eos_token_id holds ", one.to_json().substr(0, 80), ", ",
                                               one.type_name(), "; it must be an integer, or a list of them"));
    tokens.push_back(one.as_int());
  }
  return tokens;
}

}  // namespace

GenerateOptions GenerateOptions::from_pretrained(const std::string& folder, std::vector<std::string>* not_taken) {
  const auto own = path_of(folder, kFile), of_model = path_of(folder, "config.json");
  if (!own && !of_model)
    throw Error(ErrorCode::kNotFound, c10::str(folder, " holds neither ", kFile, " nor config.json"),
                "name a folder as save_pretrained() of transformers writes it");
  const ModelConfig json = ModelConfig::read(own ? *own : *of_model);
  GenerateOptions options;
  options.stop_tokens = stop_tokens_of(json);
  options.sample = json.flag("do_sample", false);
  options.temperature = json.number("temperature", 1);
  options.top_k = json.integer("top_k", 50);  // transformers' default for sampling
  options.top_p = json.number("top_p", 1);
  options.num_beams = json.integer("num_beams", 1);
  options.length_penalty = json.number("length_penalty", 1);
  if (const Value* stopping = json.find("early_stopping"); stopping && !stopping->is_string())
    options.early_stopping = json.flag("early_stopping", false);
  options.use_cache = json.flag("use_cache", true);
  options.max_length = json.integer("max_length", 0);
  // If the file limits only the total length of prompt and text, only that limit applies.
  options.max_new_tokens = json.integer("max_new_tokens", options.max_length > 0 ? options.max_length : options.max_new_tokens);
  if (json.find("max_new_tokens")) options.max_length = 0;
  options.min_length = json.integer("min_length", 0);
  options.min_new_tokens = json.integer("min_new_tokens", 0);
  options.repetition_penalty = json.number("repetition_penalty", 1);
  options.no_repeat_ngram_size = json.integer("no_repeat_ngram_size", 0);

  const std::vector<std::string> others = not_taken_of(folder, json, own.has_value());
  if (!others.empty())
    log_warning(c10::str(json.where(), ": generate() has no ", c10::Join(", ", others),
                         ": texts differ from those of transformers, which heeds ", others.size() == 1 ? "it" : "them"));
  if (not_taken) *not_taken = others;
  return options;
}

}  // namespace gannet
