/// Generates text with a model, one token at a time.
///
///   std::vector<std::vector<int64_t>> prompts = {{15496, 995}, {1212, 318, 257}};
///   const auto texts = gannet::generate(engine, prompts, {.max_new_tokens = 50, .stop_tokens = {50256}});
///   const auto drawn = gannet::generate(model, prompts, {.sample = true, .temperature = 0.8, .top_p = 0.95, .seed = 7});
///   const auto best = gannet::generate(engine, prompts, {.max_new_tokens = 50, .num_beams = 4});
///   auto options = gannet::GenerateOptions::from_pretrained("t5-small");   // from its generation_config.json
///
/// texts[i] is the continuation of prompts[i], including the stop token that ended it. The first
/// argument is an Engine, a model, or a std::shared_ptr to either. With an engine, at every ZeRO
/// stage, every rank must call it, each with any number of prompts of its own, including
/// none. At stage 3 it returns when the last rank has finished.
///
/// A model must have
///   using Cache = gannet::KvCache;                                // or a default-constructible struct with reorder(rows)
///   at::Tensor next_logits(const gannet::GenerationInput& input, Cache& cache);                      // [rows, vocabulary]
/// and may have
///   int64_t encode(const gannet::GenerationInput& prompts, Cache& cache);   // for encoders; returns the decoder's first token
///   int64_t positions() const;                                             // the maximum length of prompt and text together
///   int64_t vocabulary() const;                      // token ids are below this; default: the model's config().vocab_size
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <gannet/engine.h>
#include <gannet/kv_cache.h>
#include <gannet/zero.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace gannet {

/// Input of next_logits. Rows of unequal length are padded on the left, so that the last token of
/// each is at the end.
struct GenerationInput {
  at::Tensor tokens = {};  ///< [rows, T] int64: the tokens that the cache does not hold yet; without a cache, all S so far
  at::Tensor mask = {};    ///< [rows, S] bool, false for padding; undefined if there is none
  bool uses_cache = true;  ///< the model appends to its cache; false: it only reads what encode() stored there
};

/// The options have the names and meanings of Hugging Face's.
struct GenerateOptions {
  int64_t max_new_tokens = 20;
  std::vector<int64_t> stop_tokens = {};  ///< each of these tokens ends a text
  bool sample = false;                    ///< draw the next token, instead of taking the likeliest one (do_sample)
  double temperature = 1.0;               ///< divides the logits before a draw
  int64_t top_k = 0;                      ///< draw among this many likeliest tokens; 0: all
  double top_p = 1.0;                     ///< draw among the likeliest tokens that together have this probability
  /// Seed of the sampling. Each prompt has its own random numbers, derived from the seed and its
  /// index in `prompts`, and independent of the other prompts. Without a seed, each call generates
  /// a different text.
  std::optional<uint64_t> seed = {};
  int64_t num_beams = 1;        ///< more than 1: beam search, which returns the text with the highest score
  double length_penalty = 1.0;  ///< score: sum of log-probabilities / length^length_penalty
  bool early_stopping = false;  ///< stop once a prompt has num_beams complete texts, though a running beam may still do better
  bool use_cache = true;        ///< false: each token costs a pass over all tokens before it
  /// Limit of prompt and text together, or of an encoder-decoder's first token and text; 0: none.
  /// The smaller of this limit and max_new_tokens applies.
  int64_t max_length = 0;
  int64_t min_length = 0;            ///< no stop token before this length, counted like max_length
  int64_t min_new_tokens = 0;        ///< the same, without the prompt; above 0: ignores min_length
  double repetition_penalty = 1;     ///< divides positive logits of tokens that already occurred, and multiplies negative ones
  int64_t no_repeat_ngram_size = 0;  ///< no sequence of this many tokens occurs twice, including the prompt's; 0: no restriction

  /// Reads the options from the folder's generation_config.json or, if there is none, from its
  /// config.json. Defaults are those of transformers 5, such as 50 for top_k. Keys that would
  /// change the text and are not supported are logged, and listed in `not_taken`. Throws
  /// Error(kNotFound) if both files are missing, Error(kConfig) for a value of the wrong type.
  static GenerateOptions from_pretrained(const std::string& folder, std::vector<std::string>* not_taken = nullptr);
};

using TokenLists = std::vector<std::vector<int64_t>>;

namespace detail {

// The functions of a model that generate() calls. They hide the type of the model's cache.
struct TextModel {
  std::function<at::Tensor(const GenerationInput&)> next_logits;
  std::function<void(const at::Tensor& rows)> reorder;
  std::function<int64_t(const GenerationInput&)> encode;  // empty: a model with only a decoder
  int64_t positions = 0;                                  // 0: no limit
  int64_t vocabulary = 0;                                 // 0: unknown
  at::Device device = at::kCPU;
};
TokenLists generate(const TextModel& model, const TokenLists& prompts, const GenerateOptions& options);
// Throws Error(kArgument) if an option or a prompt is invalid. `positions` and `vocabulary` are as
// in TextModel.
void check(const GenerateOptions& options, const TokenLists& prompts, int64_t positions, int64_t vocabulary, bool has_encoder);
// At ZeRO stage 3, where all ranks generate together, one rank's mistake is an Error(kArgument) on
// all ranks, before any of them has begun.
void agree_on_prompts(EngineBase& engine, const std::optional<Error>& mistake);
template <class Model>
int64_t positions_of(const Model& model) {
  if constexpr (requires { model.positions(); })
    return model.positions();
  else
    return 0;
}
template <class Model>
int64_t vocabulary_of(const Model& model) {
  if constexpr (requires { int64_t{model.vocabulary()}; })
    return model.vocabulary();
  else if constexpr (requires { int64_t{model.config().vocab_size}; })
    return model.config().vocab_size;
  else
    return 0;
}
template <class Model>
constexpr bool has_encoder() {
  return requires(Model& model, const GenerationInput& input, typename Model::Cache& cache) { model.encode(input, cache); };
}
at::Device device_of(const torch::nn::Module& module);
bool is_training(const torch::nn::Module& module);
void set_evaluation(torch::nn::Module& module);
// The training modes of a module and all its submodules, some of which a program may have frozen
// by eval().
class TrainingModes {
 public:
  explicit TrainingModes(torch::nn::Module& module);
  void restore() const;

 private:
  std::vector<std::pair<torch::nn::Module*, bool>> modes_;
};

template <class Model>
concept NextLogits = requires(Model& model, const GenerationInput& input, typename Model::Cache& cache) {
  { model.next_logits(input, cache) } -> std::convertible_to<at::Tensor>;
};

// `call(f)` runs f(model).
template <class Model, class Call>
TokenLists generate_by(Model& model, at::Device device, Call call, const TokenLists& prompts, const GenerateOptions& options) {
  static_assert(NextLogits<Model>, "generate() asks a model for `using Cache` and next_logits(input, cache) (gannet/generate.h)");
  const at::NoGradGuard no_grad;
  typename Model::Cache cache;
  TextModel text;
  text.device = device;
  text.next_logits = [&](const GenerationInput& input) {
    return call([&](Model& asked) -> at::Tensor { return asked.next_logits(input, cache); });
  };
  text.reorder = [&](const at::Tensor& rows) { cache.reorder(rows); };
  if constexpr (has_encoder<Model>())
    text.encode = [&](const GenerationInput& input) {
      return call([&](Model& asked) -> int64_t { return asked.encode(input, cache); });
    };
  text.positions = positions_of(model);
  text.vocabulary = vocabulary_of(model);
  return generate(text, prompts, options);
}

}  // namespace detail

/// Generates with the engine's model, in eval() mode. The previous modes are then restored, even
/// after an error; modules that were in eval() before stay in it. Throws Error(kArgument) for an
/// empty prompt, one that leaves fewer than max_new_tokens of the model's positions, a token of a
/// prompt or a stop token outside the model's vocabulary, and options that contradict each other;
/// Error(kNonFinite) if the model's logits are NaN.
template <class Model>
TokenLists generate(Engine<Model>& engine, const TokenLists& prompts, const GenerateOptions& options = {}) {
  // A mistake leaves the engine unchanged.
  std::optional<Error> mistake;
  try {
    detail::check(options, prompts, detail::positions_of(*engine.module()), detail::vocabulary_of(*engine.module()),
                  detail::has_encoder<Model>());
  } catch (const Error& error) {
    mistake = error;
  }
  detail::agree_on_prompts(engine, mistake);
  struct Evaluating {
    explicit Evaluating(Engine<Model>& engine)
        : engine(engine), modes(*engine.module()), was_training(detail::is_training(*engine.module())) {
      if (was_training) engine.eval();
    }
    // After an exception, ignores errors of end(), so that the first exception propagates.
    ~Evaluating() {
      try {
        end();
      } catch (...) {
      }
    }
    void end() {
      if (!std::exchange(was_training, false)) return;
      engine.train();
      modes.restore();
    }
    Engine<Model>& engine;
    detail::TrainingModes modes;
    bool was_training;
  } evaluating(engine);
  TokenLists texts;
  {
    zero::AnswerUntilAllAreDone together(engine);
    const auto call = [&](auto function) { return engine.call(function); };
    try {
      texts = detail::generate_by(*engine.module(), engine.device(), call, prompts, options);
    } catch (const std::exception& error) {
      together.fail("generate()", error.what());
      throw;
    }
    together.wait();
  }
  evaluating.end();
  return texts;
}
/// Generates with a model that belongs to this process alone. The model is in evaluation mode
/// during the call.
template <class Model>
  requires std::is_base_of_v<torch::nn::Module, Model>
TokenLists generate(Model& model, const TokenLists& prompts, const GenerateOptions& options = {}) {
  struct Evaluating {
    explicit Evaluating(torch::nn::Module& module) : modes(module) { detail::set_evaluation(module); }
    ~Evaluating() { modes.restore(); }
    detail::TrainingModes modes;
  } evaluating(model);
  const auto call = [&](auto function) { return function(model); };
  return detail::generate_by(model, detail::device_of(model), call, prompts, options);
}
template <class Pointed>
TokenLists generate(const std::shared_ptr<Pointed>& asked, const TokenLists& prompts, const GenerateOptions& options = {}) {
  return generate(*asked, prompts, options);
}
/// Generates with a model in a TORCH_MODULE holder.
template <class Holder>
  requires requires(const Holder& holder) {
    typename Holder::ContainedType;
    holder.ptr();
  }
TokenLists generate(const Holder& holder, const TokenLists& prompts, const GenerateOptions& options = {}) {
  return generate(*holder.ptr(), prompts, options);
}

}  // namespace gannet
