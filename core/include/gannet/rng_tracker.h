/// Streams of random numbers by name, beside the default generators', for models whose layers are split over ranks: dropout of a
/// whole tensor must be the same on the ranks that share it, and dropout of a split one must differ.
///
///   gannet::checkpointing::model_parallel_manual_seed(1234);     // the default's, and "model-parallel-rng"
///   {
///     const auto fork = gannet::checkpointing::rng_tracker().fork();   // random operators draw from "model-parallel-rng"
///     attended = torch::dropout(attended, 0.1, true);
///   }                                                                  // and from the default's stream again
///
/// The tracker is the process's, as the default generators are. Regions of activation checkpointing put its states in place for
/// their recomputation, and checkpoints of an engine have them.
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
  /// States of the streams: by name, and for each device that one was drawn from ("cpu", "cuda:0").
  using States = std::map<std::string, std::map<std::string, at::Tensor>>;

  RngTracker() = default;
  RngTracker(const RngTracker&) = delete;

  /// A new stream. Throws Error(kArgument) where the name or the seed is another stream's.
  void add(const std::string& name, uint64_t seed);

  /// While it lives, the default generators of the CPU and of the current device stand in the stream's states. They nest, each
  /// with a name of its own, and end on any thread.
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
  /// Throws Error(kArgument) where no stream has the name, Error(kOrder) where a fork of it lives already.
  [[nodiscard]] Fork fork(const std::string& name = kModelParallelRng) { return Fork(*this, name); }

  /// Tensors in it are the tracker's: they are never written.
  States get_states() const;
  /// Streams that are not there yet are made.
  void set_states(const States& states);
  /// Forgets all streams.
  void reset();

 private:
  struct Stream {
    std::optional<uint64_t> seed;  // none: it came by set_states
    std::map<std::string, at::Tensor> states;
    bool is_forked = false;
  };
  at::Tensor state_on(Stream& stream, const at::Generator& generator) const;

  mutable std::mutex mutex_;
  std::map<std::string, Stream> streams_;
};

/// The process's. Never destroyed.
RngTracker& rng_tracker();

/// Resets the tracker; the default generators start at `seed`, which is to be the same on the ranks of one model, and the stream
/// "model-parallel-rng" at seed + 2718 + `tensor_rank`. Without a rank: this one's in configure()'s group, else along the tensor
/// axis of the engine that was made last, else 0.
void model_parallel_manual_seed(uint64_t seed, std::optional<uint32_t> tensor_rank = std::nullopt);

}  // namespace gannet::checkpointing
