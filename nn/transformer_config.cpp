#include <c10/util/StringUtil.h>
#include <gannet/error.h>
#include <gannet/model_config.h>
#include <gannet/nn/transformer_layer.h>

#include <fstream>
#include <iterator>
#include <variant>

#include "common/json.h"
#include "common/nearest.h"

namespace gannet::nn {
namespace {

using Config = TransformerLayerConfig;
struct Key {
  const char* name;
  std::variant<int64_t Config::*, double Config::*, bool Config::*, std::string Config::*> member;
};
const Key kLayerKeys[] = {
    {"batch_size", &Config::batch_size},
    {"hidden_size", &Config::hidden_size},
    {"intermediate_size", &Config::intermediate_size},
    {"heads", &Config::heads},
    {"attn_dropout_ratio", &Config::attn_dropout_ratio},
    {"hidden_dropout_ratio", &Config::hidden_dropout_ratio},
    {"num_hidden_layers", &Config::num_hidden_layers},
    {"initializer_range", &Config::initializer_range},
    {"layer_norm_eps", &Config::layer_norm_eps},
    {"local_rank", &Config::local_rank},
    {"seed", &Config::seed},
    {"fp16", &Config::fp16},
    {"pre_layer_norm", &Config::pre_layer_norm},
    {"normalize_invertible", &Config::normalize_invertible},
    {"gelu_checkpoint", &Config::gelu_checkpoint},
    {"adjust_init_range", &Config::adjust_init_range},
    {"attn_dropout_checkpoint", &Config::attn_dropout_checkpoint},
    {"stochastic_mode", &Config::stochastic_mode},
    {"huggingface", &Config::huggingface},
    {"return_tuple", &Config::return_tuple},
    {"training", &Config::training},
    {"gelu", &Config::gelu},
    {"layer_id", &Config::layer_id},
};

// The text may be of any file: control characters are escaped.
std::string in_quotes(const std::string& text) {
  std::string quoted = Value(text).to_json();
  quoted.front() = quoted.back() = '\'';
  return quoted;
}

[[noreturn]] void refuse(const std::string& key, const std::string& found, const std::string& next_step) {
  throw Error(ErrorCode::kConfig, c10::str("transformer layer: ", key, " is ", found), next_step);
}

void set(Config& config, const Key& key, const Value& value) {
  const auto take = [&](bool fits, const char* wanted) {
    if (!fits) refuse(key.name, c10::str(value.to_json(), " (", value.type_name(), ")"), c10::str("give ", wanted));
  };
  if (const auto* integer = std::get_if<int64_t Config::*>(&key.member)) {
    take(value.is_int(), "an integer");
    config.** integer = value.as_int();
  } else if (const auto* number = std::get_if<double Config::*>(&key.member)) {
    take(value.is_number(), "a number");
    config.** number = value.as_number();
  } else if (const auto* boolean = std::get_if<bool Config::*>(&key.member)) {
    take(value.is_bool(), "true or false");
    config.** boolean = value.as_bool();
  } else {
    take(value.is_string(), "a string");
    config.*std::get<std::string Config::*>(key.member) = value.as_string();
  }
}

// Converts UTF-16 with a byte order mark to UTF-8.
std::string from_utf16(const std::string& bytes, bool is_little) {
  std::string text;
  const auto unit = [&](size_t i) {
    const auto first = static_cast<unsigned char>(bytes[i]), second = static_cast<unsigned char>(bytes[i + 1]);
    return static_cast<uint32_t>(is_little ? first | second << 8 : first << 8 | second);
  };
  for (size_t i = 2; i + 1 < bytes.size(); i += 2) {
    uint32_t point = unit(i);
    if (point >= 0xD800 && point < 0xDC00 && i + 3 < bytes.size()) {
      point = 0x10000 + ((point - 0xD800) << 10) + (unit(i + 2) - 0xDC00);
      i += 2;
    }
    const auto put = [&](uint32_t byte) { text.push_back(static_cast<char>(byte)); };
    if (point < 0x80) {
      put(point);
    } else if (point < 0x800) {
      put(0xC0 | point >> 6), put(0x80 | (point & 0x3F));
    } else if (point < 0x10000) {
      put(0xE0 | point >> 12), put(0x80 | (point >> 6 & 0x3F)), put(0x80 | (point & 0x3F));
    } else {
      put(0xF0 | point >> 18), put(0x80 | (point >> 12 & 0x3F)), put(0x80 | (point >> 6 & 0x3F)), put(0x80 | (point & 0x3F));
    }
  }
  return text;
}

}  // namespace

Config Config::from_dict(const Dict& dictionary) {
  Config config;
  for (const auto& [name, value] : dictionary.entries()) {
    const Key* found = nullptr;
    std::vector<std::string> names;
    for (const Key& key : kLayerKeys) {
      names.emplace_back(key.name);
      if (name == key.name) found = &key;
    }
    if (!found)
      throw Error(ErrorCode::kConfig,
                  c10::str("transformer layer: unknown key ", in_quotes(name), common::did_you_mean(name, names)));
    set(config, *found, value);
  }
  config.check();
  return config;
}

Config Config::from_json_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (file && (bytes.starts_with("\xFF\xFE") || bytes.starts_with("\xFE\xFF")))
    return from_dict(common::parse_json(from_utf16(bytes, bytes[0] == '\xFF'), path).as_dict());
  return from_dict(ModelConfig::read(path).values());
}

void Config::check() const {
  const auto positive = [](const char* key, int64_t value) {
    if (value < 1) refuse(key, std::to_string(value), "give a positive integer");
  };
  positive("hidden_size", hidden_size);
  positive("heads", heads);
  if (hidden_size % heads != 0)
    refuse("heads", c10::str(heads, ", which does not divide hidden_size ", hidden_size), "give a divisor of hidden_size");
  if (intermediate_size != -1) positive("intermediate_size", intermediate_size);
  if (batch_size != -1) positive("batch_size", batch_size);
  const auto ratio = [](const char* key, double value) {
    if (value != -1 && !(value >= 0 && value < 1)) refuse(key, c10::str(value), "give a ratio from 0 to below 1");
  };
  ratio("attn_dropout_ratio", attn_dropout_ratio);
  ratio("hidden_dropout_ratio", hidden_dropout_ratio);
  if (initializer_range != -1 && !(initializer_range >= 0 && initializer_range < 1e6))
    refuse("initializer_range", c10::str(initializer_range), "give a standard deviation, as 0.02");
  if (!(layer_norm_eps >= 0 && layer_norm_eps < 1))
    refuse("layer_norm_eps", c10::str(layer_norm_eps), "give a number such as 1e-12");
  if (num_hidden_layers != -1) positive("num_hidden_layers", num_hidden_layers);
  if (adjust_init_range && local_rank == 0 && num_hidden_layers < 1)
    refuse("num_hidden_layers", std::to_string(num_hidden_layers), "adjust_init_range divides by it: give the model's layers");
  if (gelu != "erf" && gelu != "tanh") refuse("gelu", in_quotes(gelu), "give 'erf' or 'tanh'");
  if (layer_id < 0 || layer_id >= int64_t{1} << 30)
    refuse("layer_id", std::to_string(layer_id), "give the layer's place, from 0");
}

}  // namespace gannet::nn
