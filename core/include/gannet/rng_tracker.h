/// Named random number streams in addition to the default generators, for models with layers
/// that are split over ranks: dropout of a replicated tensor must be the same on the ranks that
/// share it, and dropout of a split tensor must differ.
///
///   gannet::checkpointing::model_parallel_manual_seed(1234);     // seeds the default generators and "model-parallel-rng"
///   {
///     const auto fork = gannet::checkpointing::rng_tracker().fork();   // random operators draw from "model-parallel-rng"
///     attended = torch::dropout(attended, 0.1, true);
///   }                                                                  // random operators use the default generators again
///
/// The tracker belongs to the process, as the default generators do. Regions of activation
/// checkpointing restore its states for their recomputation, and checkpoints of an engine contain
/// them.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gannet::checkpointing {

inline constexpr const char* kModelParallelRng = "model-parallel-rng";

class RngTracker {
 public:
  /// States of the streams, by the stream's name and by device ("cpu", "cuda:0").
  using States = std::map<std::string, std::map<std::string, at::Tensor>>;

  RngTracker() = default;
  RngTracker(const RngTracker&) = delete;

  /// Adds a stream. Throws Error(kArgument) if another stream has the name or the seed.
  void add(const std::string& name, uint64_t seed);

  /// While a Fork exists, the default generators of the CPU and of the current device have the
  /// stream's states. Forks of different names may nest, and may end on any thread.
  class Fork {
   public:
    Fork(RngTracker& tracker, const std::string& name);
    ~Fork();
    Fork(const Fork&) = delete;

   private:
    RngTracker& tracker_;
    const std::string name_;
    std::vector<std::pair<at::Generator, at::Tensor>> before_;
  };
  /// Throws Error(kArgument) if no stream has the name, Error(kOrder) if a fork of the stream
  /// exists already.
  [[nodiscard]] Fork fork(const std::string& name = kModelParallelRng) { return Fork(*this, name); }

  /// The tensors in the result belong to the tracker, which never writes into them.
  States get_states() const;
  /// Sets the states of the streams, and creates those that do not exist yet.
  void set_states(const States& states);
  /// Forgets all streams.
  void reset();

 private:
  struct Stream {
    std::optional<uint64_t> seed;  // none if set_states added the stream
    std::map<std::string, at::Tensor> states;
    bool is_forked = false;
  };
  at::Tensor state_on(Stream& stream, const at::Generator& generator) const;

  mutable std::mutex mutex_;
  std::map<std::string, Stream> streams_;
};

/// The process's tracker. Never destroyed.
RngTracker& rng_tracker();

/// Resets the tracker. Then seeds the default generators with `seed`, which must be the same on all
/// ranks that share a model, and the stream "model-parallel-rng" with seed + 2718 + `tensor_rank`.
/// `tensor_rank` defaults to this rank in the group passed to configure(), else to its rank along
/// the tensor axis of the engine that was made last, else to 0.
void model_parallel_manual_seed(uint64_t seed, std::optional<uint32_t> tensor_rank = std::nullopt);

}  // namespace gannet::checkpointing
