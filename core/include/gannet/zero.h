/// Gives temporary access to the full values of parameters that ZeRO stage 3 shards among ranks.
///
///   {
///     gannet::zero::GatheredParameters whole(*engine, {model->head->weight});
///     std::cout << model->head->weight.norm();                          // outside the scope, an error that names the parameter
///   }
///   {
///     gannet::zero::GatheredParameters whole(*engine, model->parameters(), {.write_from = 0});
///     if (engine->rank() == 0) torch::nn::init::xavier_uniform_(model->head->weight);   // under torch::NoGradGuard
///   }                                                                   // all ranks and the masters now have rank 0's values
///
/// It works at every stage, so that a program need not check its stage. Every rank must make the
/// same guards in the same order; the engine's own forward and backward need none. A training
/// forward, step(), saves, loads and eval() throw Error(kOrder) while a guard with write_from is
/// open, since the values reach the engine only when the guard ends.
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
        {};  ///< all ranks take this rank's values when the guard ends; without it, writing into sharded parameters is an error
  };

  /// `parameters` belong to the engine's module, and may include some that are not sharded. Throws
  /// Error(kMismatch) if the ranks' requests differ, Error(kArgument) for a tensor that is not a
  /// parameter of the module or a write_from that is not a rank, Error(kOrder) for write_from
  /// between eval() and train() if the model has evaluation weights (gannet.ema, Schedule-Free).
  GatheredParameters(EngineBase& engine, std::vector<at::Tensor> parameters, Options options);
  GatheredParameters(EngineBase& engine, std::vector<at::Tensor> parameters)
      : GatheredParameters(engine, std::move(parameters), Options()) {}
  /// Publishes the written values. If an exception ends the scope, sharded parameters keep their
  /// former values on every rank; unsharded parameters (below stage 3) keep the values written into
  /// them, as without a guard.
  ~GatheredParameters();
  GatheredParameters(const GatheredParameters&) = delete;

  /// Does the destructor's work, for a program that wants to get errors at once: the destructor
  /// only logs an error, and the next training forward, step() or save throws it.
  void publish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Builds a model that is larger than one rank's memory. While an Init exists, each parameter is
/// made and initialised as the model's author wrote it. When the next parameter is made, the
/// previous one is sharded among the ranks, with rank 0's values.
///
///   std::shared_ptr<Gpt> model;
///   {
///     gannet::zero::Init init({.config = "ds_config.json"});
///     model = std::make_shared<Gpt>(options);                 // gannet::load_weights(*model, folder) also works here
///   }
///   auto [engine, optimizer, loader, scheduler] = gannet::initialize(model, {.config = "ds_config.json"});
///
/// Every rank builds the same model in the same order. Reading or writing a parameter again while
/// the Init exists is allowed, and gathers it for that operator. Between the end of the Init and
/// initialize, a parameter has no bytes. Parameters of at most stage3_param_persistence_threshold
/// elements stay unsharded. Below ZeRO stage 3 and on one rank an Init is a no-op, which is logged.
class Init {
 public:
  struct Options {
    Config config;
    Dict overwrite = {};  ///< merged over the config
    std::shared_ptr<ProcessGroup> process_group = {};
    std::optional<MeshShape> mesh = {};   ///< as in initialize; both must get the same value
    std::shared_ptr<const Mpu> mpu = {};  ///< as in initialize; both must get the same value
  };
  explicit Init(Options options);
  ~Init();
  Init(const Init&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Lets ranks run different numbers of forwards, as in an evaluation with shards of different
/// lengths, or in generating texts of different lengths. A finished rank keeps sending its shards
/// of parameters to the others, until all are done.
///
///   gannet::zero::AnswerUntilAllAreDone together(*engine);
///   while (!is_finished(text)) text = append(text, engine->forward(text));    // under NoGradGuard; any number of times
///   // end of scope: waits until every rank is here
class AnswerUntilAllAreDone {
 public:
  explicit AnswerUntilAllAreDone(EngineBase& engine);
  ~AnswerUntilAllAreDone();
  AnswerUntilAllAreDone(const AnswerUntilAllAreDone&) = delete;

  /// Does the destructor's work, for a program that wants to get its error.
  void wait();
  /// Call it instead of wait() if this rank leaves `call` by an exception with message `error`:
  /// the other ranks, which wait for it, then get an Error that names this rank
  /// (ProcessGroup::report_failure). After an exception the destructor does the same, without the
  /// exception's message.
  void fail(const std::string& call, const std::string& error) noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gannet::zero
