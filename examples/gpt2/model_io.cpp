#include "model_io.h"

#include <ATen/core/grad_mode.h>
#include <gannet/error.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <vector>

namespace gpt2 {
namespace {

using gannet::Error;
using gannet::ErrorCode;
using Json = nlohmann::ordered_json;
using Tensors = std::map<std::string, at::Tensor>;

Json read_json(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in)
    throw Error(ErrorCode::kNotFound, "cannot open " + path.string(),
                "name a folder that holds config.json and model.safetensors, as transformers writes them");
  try {
    Json json = Json::parse(std::string(std::istreambuf_iterator<char>(in), {}));
    if (json.is_object()) return json;
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::kCorrupt, path.string() + ": not JSON: " + error.what());
  }
  throw Error(ErrorCode::kCorrupt, path.string() + ": not a JSON object");
}

// Reads the keys of Hugging Face's GPT2Config, with its defaults. Null also means the default (a
// default n_inner is saved as null).
GptOptions parse_options(const Json& config, const std::string& path) {
  const auto read = [&]<class T>(const char* key, T fallback) {
    if (!config.contains(key) || config[key].is_null()) return fallback;
    try {
      return config[key].get<T>();
    } catch (const Json::exception&) {
      throw Error(ErrorCode::kCorrupt, path + ": " + key + " is " + config[key].dump().substr(0, 80) + ", of the wrong type");
    }
  };
  if (const auto type = read("model_type", std::string("gpt2")); type != "gpt2")
    throw Error(ErrorCode::kUnsupported, path + ": model_type is '" + type + "'", "this program trains models of type 'gpt2'");
  if (read("add_cross_attention", false))
    throw Error(ErrorCode::kUnsupported, path + ": add_cross_attention is true", "this program trains decoders only");
  if (!read("tie_word_embeddings", true))
    throw Error(ErrorCode::kUnsupported, path + ": tie_word_embeddings is false",
                "this program's output layer is always tied to the token embedding");
  return {
      .vocabulary = read("vocab_size", int64_t{50257}),
      .positions = read("n_positions", int64_t{1024}),
      .width = read("n_embd", int64_t{768}),
      .layers = read("n_layer", int64_t{12}),
      .heads = read("n_head", int64_t{12}),
      .inner = read("n_inner", int64_t{0}),
      .activation = read("activation_function", std::string("gelu_new")),
      .epsilon = read("layer_norm_epsilon", 1e-5),
      .initializer_range = read("initializer_range", 0.02),
      .embedding_dropout = read("embd_pdrop", 0.1),
      .residual_dropout = read("resid_pdrop", 0.1),
      .attention_dropout = read("attn_pdrop", 0.1),
      .scale_attention = read("scale_attn_weights", true),
      .scale_attention_by_layer = read("scale_attn_by_inverse_layer_idx", false),
  };
}

Tensors read_tensors(const std::filesystem::path& folder) {
  const auto index = folder / "model.safetensors.index.json";
  if (!std::filesystem::exists(index)) return gannet::load_safetensors((folder / "model.safetensors").string());
  const Json map = read_json(index).value("weight_map", Json::object());
  std::set<std::string> shards;
  for (const auto& [name, shard] : map.items())
    if (shard.is_string()) shards.insert(shard.get<std::string>());
  Tensors tensors;
  for (const auto& shard : shards) {
    if (shard.find('/') != std::string::npos)
      throw Error(ErrorCode::kCorrupt, index.string() + ": a shard outside of the folder: " + shard);
    tensors.merge(gannet::load_safetensors((folder / shard).string()));
  }
  return tensors;
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// Older files lack the prefix, or contain the causal mask as a buffer, or contain the tied output
// layer a second time.
Tensors with_current_names(Tensors tensors) {
  Tensors renamed;
  for (auto& [name, tensor] : tensors) {
    if (name == "lm_head.weight" || ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias")) continue;
    renamed[name.starts_with("transformer.") ? name : "transformer." + name] = std::move(tensor);
  }
  return renamed;
}

std::string shape_text(const at::Tensor& tensor) {
  std::ostringstream out;
  out << tensor.sizes();
  return out.str();
}

void copy_into(GptImpl& model, const Tensors& tensors, const std::string& folder) {
  std::vector<std::string> differences;
  std::set<std::string> expected;
  for (const auto& item : model.named_parameters()) {
    expected.insert(item.key());
    const auto found = tensors.find(item.key());
    if (found == tensors.end())
      differences.push_back("missing: " + item.key() + " " + shape_text(item.value()));
    else if (found->second.sizes() != item.value().sizes())
      differences.push_back("shape: " + item.key() + " is " + shape_text(found->second) + " in the file, " +
                            shape_text(item.value()) + " by config.json");
    else if (!at::isFloatingType(found->second.scalar_type()))
      differences.push_back("dtype: " + item.key() + " is " + c10::toString(found->second.scalar_type()) +
                            ", not a floating type");
  }
  for (const auto& [name, tensor] : tensors)
    if (!expected.count(name)) differences.push_back("unexpected: " + name + " " + shape_text(tensor));
  if (!differences.empty()) {
    constexpr size_t kShown = 5;
    std::string text = folder + ": the tensors of the file do not fit config.json:";
    for (size_t i = 0; i < std::min(differences.size(), kShown); ++i) text += "\n    " + differences[i];
    if (differences.size() > kShown) text += "\n    and " + std::to_string(differences.size() - kShown) + " more";
    throw Error(ErrorCode::kMismatch, text, "use the config.json that was saved with this model.safetensors");
  }
  at::NoGradGuard no_grad;
  for (auto& item : model.named_parameters()) item.value().copy_(tensors.at(item.key()));
}

}  // namespace

LoadedModel load_model(const std::string& folder, bool plain_operators) {
  const auto path = std::filesystem::path(folder) / "config.json";
  const Json config = read_json(path);
  LoadedModel loaded;
  GptOptions options = parse_options(config, path.string());
  options.plain_operators = plain_operators;
  loaded.model = Gpt(options);
  loaded.config_json = config.dump();
  copy_into(*loaded.model, with_current_names(read_tensors(folder)), folder);
  return loaded;
}

void save_config(const std::string& folder, const GptOptions& options, const std::string& config_json) {
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (code) throw Error(ErrorCode::kIo, "cannot create the folder " + folder + ": " + code.message());
  const auto path = std::filesystem::path(folder) / "config.json";
  Json config = config_json.empty() ? Json::object() : Json::parse(config_json);
  config["architectures"] = {"GPT2LMHeadModel"};
  config["model_type"] = "gpt2";
  config["dtype"] = "float32";
  config["vocab_size"] = options.vocabulary;
  config["n_positions"] = options.positions;
  config["n_embd"] = options.width;
  config["n_layer"] = options.layers;
  config["n_head"] = options.heads;
  config["n_inner"] = options.inner == 4 * options.width ? Json(nullptr) : Json(options.inner);
  config["activation_function"] = options.activation;
  config["layer_norm_epsilon"] = options.epsilon;
  config["initializer_range"] = options.initializer_range;
  config["embd_pdrop"] = options.embedding_dropout;
  config["resid_pdrop"] = options.residual_dropout;
  config["attn_pdrop"] = options.attention_dropout;
  config["scale_attn_weights"] = options.scale_attention;
  config["scale_attn_by_inverse_layer_idx"] = options.scale_attention_by_layer;
  config["tie_word_embeddings"] = true;
  // The default ids belong to GPT-2's own vocabulary; a smaller vocabulary does not have them.
  for (const char* key : {"bos_token_id", "eos_token_id"})
    if (!config.contains(key)) config[key] = options.vocabulary > 50256 ? 50256 : 0;

  const auto temporary = path.string() + ".tmp";
  std::ofstream out(temporary, std::ios::binary);
  out << config.dump(2) << '\n';
  out.close();
  if (out) std::filesystem::rename(temporary, path, code);
  if (!out || code) throw Error(ErrorCode::kIo, "cannot write " + path.string() + (code ? ": " + code.message() : ""));
}

void save_model(const std::string& folder, const GptOptions& options, const std::string& config_json,
                const gannet::NamedTensors& parameters) {
  save_config(folder, options, config_json);
  gannet::NamedTensors tensors;
  for (const auto& [name, tensor] : parameters) tensors.emplace_back(name, tensor.detach().to(at::kFloat));
  gannet::save_safetensors((std::filesystem::path(folder) / "model.safetensors").string(), tensors, {{"format", "pt"}});
}

}  // namespace gpt2
