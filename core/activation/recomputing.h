// What an engine has recomputed of the layers that a model of its parameters gives to run_layers.
//
//   auto mine = std::make_shared<Recomputing>(settings);
//   mine->own(parameters);                                       // layers that have one of them are cut as `mine` says
//   { const Recomputing::Forward here(mine); model->forward(x); }  // and on this thread layers that have none of any engine
//
// With a memory limit the choice is made from one micro-batch. Until it is made every layer is a region, so that the measurement
// itself needs no more than the smallest choice: what a layer would keep is seen as its region drops it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <gannet/layers.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "activation/cuts.h"

namespace gannet::activation {

struct RecomputeSettings {
  bool is_on = false;
  // The first one that is given; none: each layer is a region.
  std::optional<int64_t> memory_limit;        // bytes
  std::optional<int64_t> interval;            // layers
  std::optional<int64_t> number_checkpoints;  // regions
  std::string to_string() const;              // "interval 2"
};

class Recomputing : public std::enable_shared_from_this<Recomputing> {
 public:
  /// `wait`: until the device has done what it was given; empty: it has no queue.
  explicit Recomputing(RecomputeSettings settings, std::function<void()> wait = {});
  ~Recomputing();

  /// Of these parameters; one that another engine had changes over.
  void own(const std::vector<at::Tensor>& parameters);
  /// Whose these layers are: by their first parameter that has an engine, else of the forward on this thread; null: nobody's.
  static std::shared_ptr<Recomputing> of(const std::vector<Layer>& layers);

  void turn(bool on);
  bool is_on() const { return settings_.is_on; }
  /// Once after turn() was called: recomputation gathers parameters that ranks without it do not ask for.
  bool take_turned() { return std::exchange(turned_, false); }
  const RecomputeSettings& settings() const { return settings_; }
  /// Where a list is cut in the forward at hand.
  struct Plan {
    std::vector<LayerGroup> groups;
    bool is_measured = false;  // its groups are single layers, and add() takes what each kept and took
  };
  Plan plan(const std::vector<Layer>& layers);
  void add(const std::vector<Layer>& layers, std::vector<MeasuredLayer> measured);
  std::unordered_set<const c10::StorageImpl*> parameter_storages() const;
  void wait() const;

  /// Lists of layers that were measured and not chosen from yet, as text, the same on every rank; "": none.
  std::string unchosen() const;
  /// Of all lists, in the order of their first run.
  std::vector<MeasuredLayer> measured_layers() const;
  /// Bytes and seconds of all lists, which ranks agree on before choose().
  std::vector<double> measured() const;
  /// The choice, from what measured() has become. Returns it in words.
  std::string choose(const std::vector<double>& agreed);

  // On the thread of an engine's forward.
  class Forward {
   public:
    explicit Forward(std::shared_ptr<Recomputing> recomputing);
    ~Forward();
    Forward(const Forward&) = delete;

   private:
    const std::shared_ptr<Recomputing> recomputing_;
    const uint64_t regions_before_;
  };
  /// Whether there was no region in this engine's forwards; true once.
  bool is_without_effect() { return regions_ == 0 && !std::exchange(has_said_so_, true); }

 private:
  struct List {
    std::string names;
    std::vector<MeasuredLayer> layers;  // empty: not measured yet
    std::vector<LayerGroup> groups;     // empty: not chosen yet
  };
  List* find(const std::string& names);

  RecomputeSettings settings_;
  bool turned_ = false;
  const std::function<void()> wait_;
  std::vector<at::Tensor> parameters_;
  mutable std::mutex mutex_;  // of the lists: several threads of the program may run layers
  std::vector<List> lists_;   // in the order of their first run
  std::atomic<uint64_t> regions_ = 0;
  bool has_said_so_ = false;
};

}  // namespace gannet::activation
