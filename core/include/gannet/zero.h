/// Parameters that ZeRO stage 3 shares out among the ranks, whole for a while.
///
///   {
///     gannet::zero::GatheredParameters whole(*engine, {model->head->weight});
///     std::cout << model->head->weight.norm();                          // outside of it, an error that names the parameter
///   }
///   {
///     gannet::zero::GatheredParameters whole(*engine, model->parameters(), {.write_from = 0});
///     if (engine->rank() == 0) torch::nn::init::xavier_uniform_(model->head->weight);   // under torch::NoGradGuard
///   }                                                                   // rank 0's values are every rank's, and the masters'
///
/// It works at every stage, so that a program need not ask which one it runs at. Every rank makes the same guards in the same
/// order; the engine's own forward and backward need none.
#pragma once

#include <gannet/engine.h>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace gannet::zero {

class GatheredParameters {
 public:
  struct Options {
    std::optional<uint32_t> write_from = {};  ///< the rank whose values all take when the guard ends; without it, writing is an error
  };

  /// Parameters of the engine's module; those that are whole anyway count too. Throws Error(kMismatch) where the ranks ask for
  /// different ones, Error(kArgument) for a tensor that is none of the module's parameters.
  GatheredParameters(EngineBase& engine, std::vector<at::Tensor> parameters, Options options);
  GatheredParameters(EngineBase& engine, std::vector<at::Tensor> parameters) : GatheredParameters(engine, std::move(parameters), Options()) {}
  /// Publishes what was written. Not when an exception ends the scope: then the values from before stay, on every rank.
  ~GatheredParameters();
  GatheredParameters(const GatheredParameters&) = delete;

  /// What the destructor does, for a program that wants its error: a destructor can only log it.
  void publish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Ranks that stop at different lengths: an evaluation whose shards differ, texts that end. A rank that is done goes on giving its
/// parts of parameters to the others, until all are done.
///
///   gannet::zero::AnswerUntilAllAreDone together(*engine);
///   while (!is_finished(text)) text = append(text, engine->forward(text));    // under NoGradGuard; as often as this rank needs
///   // here: ends when every rank has come
class AnswerUntilAllAreDone {
 public:
  explicit AnswerUntilAllAreDone(EngineBase& engine);
  ~AnswerUntilAllAreDone();
  AnswerUntilAllAreDone(const AnswerUntilAllAreDone&) = delete;

  /// What the destructor does, for a program that wants its error.
  void wait();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gannet::zero
