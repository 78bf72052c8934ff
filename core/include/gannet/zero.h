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
/// order; the engine's own forward and backward need none. A training forward, step(), saves, loads and eval() throw
/// Error(kOrder) while a guard with write_from is open: what is written reaches the engine when the guard ends.
#pragma once

#include <ATen/core/Tensor.h>
#include <gannet/config.h>
#include <gannet/engine.h>
#include <gannet/mesh.h>
#include <gannet/mpu.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace gannet::zero {

class GatheredParameters {
 public:
  struct Options {
    std::optional<uint32_t> write_from =
        {};  ///< the rank whose values all take when the guard ends; without it, writing what ZeRO shares out is an error
  };

  /// Parameters of the engine's module; those that are whole anyway count too. Throws Error(kMismatch) where the ranks ask for
  /// different ones, Error(kArgument) for a tensor that is none of the module's parameters, Error(kOrder) for write_from between
  /// eval() and train() where the model has other weights then (gannet.ema, Schedule-Free).
  GatheredParameters(EngineBase& engine, std::vector<at::Tensor> parameters, Options options);
  GatheredParameters(EngineBase& engine, std::vector<at::Tensor> parameters)
      : GatheredParameters(engine, std::move(parameters), Options()) {}
  /// Publishes what was written. When an exception ends the scope, what ZeRO shares out keeps its values from before, on every
  /// rank; parameters that are whole (below stage 3) keep what was written into them, as without a guard.
  ~GatheredParameters();
  GatheredParameters(const GatheredParameters&) = delete;

  /// What the destructor does, for a program that wants its error at once: a destructor logs it, and the next training forward,
  /// step() or save throws it.
  void publish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Builds a model that is larger than one rank's memory: while it lives, each parameter is made and initialised as its author
/// wrote it, and shared out among the ranks, with rank 0's values, as soon as the next one is begun.
///
///   std::shared_ptr<Gpt> model;
///   {
///     gannet::zero::Init init({.config = "ds_config.json"});
///     model = std::make_shared<Gpt>(options);                 // gannet::load_weights(*model, folder) works here, too
///   }
///   auto [engine, optimizer, loader, scheduler] = gannet::initialize(model, {.config = "ds_config.json"});
///
/// Every rank builds the same model in the same order. Reading or writing a parameter again under it is legal, and brings it back
/// for the operator. After it, and before initialize, a parameter has no bytes. Parameters of stage3_param_persistence_threshold
/// elements or fewer stay whole. Below ZeRO stage 3 and on one rank it does nothing, which is logged.
class Init {
 public:
  struct Options {
    Config config;
    Dict overwrite = {};  ///< merged over the config
    std::shared_ptr<ProcessGroup> process_group = {};
    std::optional<MeshShape> mesh = {};   ///< as initialize's, and the same as is given there
    std::shared_ptr<const Mpu> mpu = {};  ///< likewise
  };
  explicit Init(Options options);
  ~Init();
  Init(const Init&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Ranks that stop at different lengths: an evaluation whose shards differ, texts that end. A finished rank keeps giving
/// its parts of parameters to the others, until all are done.
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
  /// In place of wait(), where this rank ends by `error`: the others, which then wait for it, get an Error that names it
  /// (ProcessGroup::report_failure). The destructor does so after an exception, whose text it does not know.
  void fail(const std::string& call, const std::string& error) noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gannet::zero
