// Writes down every operator of a forward and its backward: what it did, how long it took, and what tells whose it is.
//
//   auto recorder = std::make_shared<Recorder>(*model, /*is_timed=*/device.is_cpu());
//   { zero::Observing armed(recorder); loss = forward(); recorder->end_forward(); loss.backward(); }
//   ModelProfile profile = recorder->profile();
#pragma once

#include <gannet/profile.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "params/observer.h"
#include "profiler/modules.h"
#include "profiler/rules.h"

namespace gannet::profiler {

class Recorder : public zero::Observer {
 public:
  Recorder(const torch::nn::Module& model, bool is_timed);

  void on_operator(const c10::OperatorHandle& op, const std::vector<c10::IValue>& stack, c10::function_ref<void()> run) override;
  // Operators between are the engine's, not the model's.
  void listen(bool on) { listens_ = on; }
  // Notes what is alive now of what operators made: what backward will need.
  void end_forward();
  // Whose each operator was, summed up. Memory: activations and nothing else.
  ModelProfile profile() const;
  const Modules& modules() const { return modules_; }

 private:
  struct Event {
    size_t op;                     // of names_
    std::optional<size_t> own;     // the module whose parameters it reads
    std::optional<uint64_t> node;  // in backward: the autograd node's number
    bool is_backward = false, is_of_this_thread = true;
    // The counter of nodes is thread-local: the range means something only where is_of_this_thread.
    uint64_t first_node = 0, next_node = 0;  // of the autograd nodes made while it ran: [first, next)
    Counted counted;
    double seconds = 0;
  };
  struct Made {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    size_t event;
  };
  std::optional<size_t> owner(const std::vector<c10::IValue>& stack, size_t count) const;
  size_t index_of(const std::string& name);
  std::vector<size_t> attribute() const;  // attribution.cpp: the module of each event

  Modules modules_;
  bool is_timed_;
  std::atomic<bool> listens_ = true;
  // The thread that runs forward: only its operators have a place in the order that attribute() goes by.
  uint64_t thread_ = thread_number();
  // Autograd's counter when recording began: lower numbers are of nodes from an earlier forward.
  uint64_t first_node_;
  mutable std::mutex mutex_;  // autograd has a thread for each device
  // Event::op indexes these three: the operator, its rule or null, and whether its result is a copy of its argument.
  std::vector<std::string> names_;
  std::vector<const Rule*> rules_;  // of each name
  std::vector<bool> is_copy_;
  std::unordered_map<std::string, size_t> index_;
  std::vector<Event> events_;
  // Storages made in forward, and by which event. Weak: recording keeps no activation alive.
  std::unordered_map<const c10::StorageImpl*, Made> made_;
  std::vector<std::pair<size_t, int64_t>> alive_;  // events and bytes
};

}  // namespace gannet::profiler
