/// Named streams of random numbers in addition to the default generators', for models with layers
/// that are split over ranks: dropout of a whole tensor must be the same on the ranks that share
/// it, and dropout of a split one must differ.
///
///   gannet::checkpointing::model_parallel_manual_seed(1234);     // the default's, and "model-parallel-rng"
///   {
///     const auto fork = gannet::checkpointing::rng_tracker().fork();   // random operators draw from "model-parallel-rng"
///     attended = torch::dropout(attended, 0.1, true);
///   }                                                                  // and from the default's stream again
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
  /// States of the streams, by name and by device that the stream was drawn from ("cpu", "cuda:0").
  using States = std::map<std::string, std::map<std::string, at::Tensor>>;

  RngTracker() = default;
  RngTracker(const RngTracker&) = delete;

  /// Adds a stream. Throws Error(kArgument) if another stream has the name or the seed.
  void add(const std::string& name, uint64_t seed);

  /// While it exists, the default generators of the CPU and of the current device have the stream's
  /// states. Forks of different names may nest, and may end on any thread.
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
  /// Throws Error(kArgument) if no stream has the name, Error(kOrder) if a fork of it exists
  /// already.
  [[nodiscard]] Fork fork(const std::string& name = kModelParallelRng) { return Fork(*this, name); }

  /// The tensors in it belong to the tracker, and are never written.
  States get_states() const;
  /// Creates the streams that do not exist yet.
  void set_states(const States& states);
  /// Forgets all streams.
  void reset();

 private:
  struct Stream {
    std::optional<uint64_t> seed;  // none: added by set_states
    std::map<std::string, at::Tensor> states;
    bool is_forked = false;
  };
  at::Tensor state_on(Stream& stream, const at::Generator& generator) const;

  mutable std::mutex mutex_;
  std::map<std::string, Stream> streams_;
};

/// The process's tracker. Never destroyed.
RngTracker& rng_tracker();

/// Resets the tracker. The default generators start at `seed`, which must be the same on the ranks
/// of one model, and the stream "model-parallel-rng" at seed + 2718 + `tensor_rank`. Default of
/// `tensor_rank`: this rank in configure()'s group, else its rank along the tensor axis of the
/// engine that was made last, else 0.
void model_parallel_manual_seed(uint64_t seed, std::optional<uint32_t> tensor_rank = std::nullopt);

}  // namespace gannet::checkpointing
