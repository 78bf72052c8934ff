#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <gannet/models/bert.h>

#include "bert_body.h"

namespace gannet::models {

BertConfig BertConfig::from(const ModelConfig& json) {
  json.require_type({"bert"});
  BertConfig config;
  config.vocab_size = json.size("vocab_size", config.vocab_size);
  config.hidden_size = json.size("hidden_size", config.hidden_size);
  config.num_hidden_layers = json.size("num_hidden_layers", config.num_hidden_layers);
  config.num_attention_heads = json.size("num_attention_heads", config.num_attention_heads);
  config.intermediate_size = json.size("intermediate_size", config.intermediate_size);
  config.hidden_act = json.text("hidden_act", config.hidden_act);
  config.hidden_dropout_prob = json.number("hidden_dropout_prob", config.hidden_dropout_prob);
  config.attention_probs_dropout_prob = json.number("attention_probs_dropout_prob", config.attention_probs_dropout_prob);
  config.max_position_embeddings = json.size("max_position_embeddings", config.max_position_embeddings);
  config.type_vocab_size = json.size("type_vocab_size", config.type_vocab_size);
  config.initializer_range = json.number("initializer_range", config.initializer_range);
  config.layer_norm_eps = json.number("layer_norm_eps", config.layer_norm_eps);
  // Hugging Face's config.json lists the labels by name; a number that the program sets takes
  // precedence.
  const auto labels = static_cast<int64_t>(json.section("id2label").values().entries().size());
  config.num_labels = json.size("num_labels", labels > 0 ? labels : config.num_labels);
  config.problem_type = json.text("problem_type", config.problem_type);
  config.classifier_dropout = json.number("classifier_dropout", config.classifier_dropout);
  require_activation(json, "hidden_act", config.hidden_act);
  if (config.hidden_size % config.num_attention_heads != 0)
    json.refuse("num_attention_heads", "hidden_size " + std::to_string(config.hidden_size) + " is not a multiple of it");
  if (const std::string kind = json.text("position_embedding_type", "absolute"); kind != "absolute")
    json.refuse("position_embedding_type", "this BERT has absolute positions");
  if (json.flag("is_decoder", false)) json.refuse("is_decoder", "this BERT is an encoder");
  if (!json.flag("tie_word_embeddings", true))
    json.refuse("tie_word_embeddings", "this BERT's head has the word embedding's matrix");
  return config;
}

BertImpl::BertImpl(const BertConfig& config)
    : config_(config), body_(register_module("bert", std::make_shared<BertBody>(config, /*has_pooler=*/false))) {
  predictions_ = folder(*folder(*this, "cls"), "predictions");
  const auto transform = folder(*predictions_, "transform");
  transform_ =
      transform->register_module("dense", linear(config.hidden_size, config.hidden_size, true, config.initializer_range));
  transform_norm_ = transform->register_module("LayerNorm", layer_norm(config.hidden_size, config.layer_norm_eps));
  bias_ = predictions_->register_parameter("bias",
                                           at::zeros({config.vocab_size}, at::TensorOptions().dtype(c10::get_default_dtype())));
}

std::vector<Layer> BertImpl::layers() { return body_->layers(); }

Tensor BertImpl::head(const Tensor& x) {
  const Tensor turned = transform_norm_->forward(activated(config_.hidden_act, transform_->forward(x)));
  return at::linear(turned, body_->words()->weight, bias_);
}

std::vector<Layer> BertImpl::pipeline_layers() {
  std::vector<Layer> list = layers();
  list.push_back(
      gannet::function("cls.predictions", {predictions_, body_->words().ptr()}, [this](const Tensor& x) { return head(x); }));
  return list;
}

Tensor BertImpl::pipeline_loss(const Tensor& logits, const Tensor& labels) const { return cross_entropy(logits, labels); }

Tensor BertImpl::logits(const Tensor& tokens, const MaybeTensor& mask, const MaybeTensor& token_types) {
  return head(body_->forward(tokens, mask, token_types));
}

Tensor BertImpl::forward(const Tensor& tokens, const Tensor& labels, const MaybeTensor& mask, const MaybeTensor& token_types) {
  return cross_entropy(logits(tokens, mask, token_types), labels);
}

PretrainedNames BertImpl::pretrained_names() const {
  PretrainedNames names = bert_names();
  names.ignored.insert(names.ignored.end(), {"*pooler.dense.*", "cls.seq_relationship.*"});
  names.tied = {{"cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
                {"cls.predictions.decoder.bias", "cls.predictions.bias"}};
  return names;
}

}  // namespace gannet::models
