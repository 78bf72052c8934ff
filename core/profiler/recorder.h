// Records every operator of a forward and its backward: its work, its duration, and the data needed
// to assign it to a module.
//
//   auto recorder = std::make_shared<OperatorRecorder>(*model, /*is_timed=*/device.is_cpu());
//   { zero::ObserverScope armed(recorder); loss = forward(); recorder->end_forward(); loss.backward(); }
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

class OperatorRecorder : public zero::Observer {
 public:
  OperatorRecorder(const torch::nn::Module& model, bool is_timed);

  void on_operator(const c10::OperatorHandle& op, const std::vector<c10::IValue>& stack, c10::function_ref<void()> run) override;
  // Turns recording on or off. Operators that run while it is off are the engine's, not the
  // model's.
  void listen(bool on) { listens_ = on; }
  // Records which of the storages created by operators are still alive, since these are the ones
  // that backward will need.
  void end_forward();
  // Assigns each operator to a module and computes the totals. For memory, the result has only the
  // figures of activations.
  ModelProfile profile() const;
  const Modules& modules() const { return modules_; }

 private:
  struct Event {
    size_t op;                     // index into names_
    std::optional<size_t> own;     // the module whose parameters the operator reads
    std::optional<uint64_t> node;  // in backward: the number of the autograd node that runs it
    bool is_backward = false, is_of_this_thread = true;
    // The node counter is thread-local, so this range is only meaningful if is_of_this_thread.
    uint64_t first_node = 0, next_node = 0;  // numbers of the autograd nodes created while it ran: [first, next)
    OperationCount counted;
    double seconds = 0;
  };
  struct CreatedStorage {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    size_t event;
  };
  std::optional<size_t> owner(const std::vector<c10::IValue>& stack, size_t count) const;
  size_t index_of(const std::string& name);
  std::vector<size_t> attribute() const;  // attribution.cpp: the module of each event

  Modules modules_;
  bool is_timed_;
  std::atomic<bool> listens_ = true;
  // The thread that runs forward. Only its operators are part of the order that attribute() uses.
  uint64_t thread_ = thread_number();
  // Autograd's counter when recording began: lower numbers belong to nodes of an earlier forward.
  uint64_t first_node_;
  mutable std::mutex mutex_;  // autograd has one thread per device
  // Event::op is an index into these three: the operator's name, its rule (or null), and whether
  // its result is a copy of its argument.
  std::vector<std::string> names_;
  std::vector<const Rule*> rules_;  // null: no rule
  std::vector<bool> is_copy_;
  std::unordered_map<std::string, size_t> index_;
  std::vector<Event> events_;
  // Storages created in forward, with the event that created them. The references are weak, so that
  // recording keeps no activation alive.
  std::unordered_map<const c10::StorageImpl*, CreatedStorage> made_;
  std::vector<std::pair<size_t, int64_t>> alive_;  // events and bytes
};

}  // namespace gannet::profiler
