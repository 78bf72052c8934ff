// Parameters whose bytes come when an operator reads them and go when it is done (ZeRO stage 3, parameters on a slower tier).
//
//   Residency residency(source, limits);
//   const size_t id = residency.add("h.0.weight", parameter);  // its bytes are gone; its shape, dtype and identity stay
//   residency.begin(Residency::Pass::kForward);
//   residency.acquire({id});                                   // here: by operators through interception.h
//   residency.release({id});
//
// The order of uses is recorded (trace.h); when it is known, the next ones are asked for ahead, and what is used again soon
// stays. What is gathered and released is decided by that order and the limits alone, so that all ranks decide alike.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "params/interception.h"
#include "params/trace.h"

namespace gannet::zero {

// Where whole parameters come from: the other ranks' shards, a slower tier.
class Source {
 public:
  virtual ~Source() = default;
  virtual int64_t numel_to_gather(
      size_t parameter) const = 0;  // elements of the buffer that start() fills: the parameter, padding
  virtual void start(size_t parameter, const at::Tensor& whole) = 0;                // begins to fill `whole`
  virtual void finish(size_t parameter) = 0;                                        // until it is there
  virtual void keep(size_t, const at::Tensor& whole) { static_cast<void>(whole); }  // an operator has written into `whole`
  // New values, of which `read` fills those that this rank has. Nobody uses the parameter meanwhile. False: it takes none.
  virtual bool write(size_t, ReadElements) { return false; }
  virtual void released(size_t) {}                   // the parameter belongs to another source from now on
  virtual void drop(size_t parameter) noexcept = 0;  // what was started is not wanted any more; it is over when this returns
};

class Residency {
 public:
  struct Limits {                            // in elements
    int64_t prefetch = 50'000'000;           // asked for ahead at a time
    int64_t live = 1'000'000'000;            // here or coming, as far as no operator needs more
    int64_t reuse_distance = 1'000'000'000;  // kept when it is used again within fewer
  };
  enum class Pass { kForward, kBackward, kEvaluation };

  Residency(Source& source, Limits limits);
  ~Residency();  // a module that outlives its engine has its parameters' shapes, and their names when it reads them
  Residency(const Residency&) = delete;

  // `where` completes the sentence that a read outside of an operator throws: "parameter 'x' " + where.
  // `counted`: its elements in what the limits and the order of gathers depend on, which must be the same on every rank; 0: those
  // of the parameter.
  size_t add(const std::string& name, const at::Tensor& parameter, const std::string& where, int64_t counted = 0);
  size_t size() const { return residents_.size(); }
  const std::string& name(size_t parameter) const { return residents_[parameter].name; }
  at::Tensor tensor(size_t parameter) const { return residents_[parameter].tensor; }

  void begin(Pass pass);
  void end();  // of the stretch: nothing stays that no guard holds
  const char* stretch_name() const;

  void acquire(const std::vector<size_t>& parameters);  // an operator's: part of the recorded order
  void hold(const std::vector<size_t>& parameters);     // a guard's
  void release(const std::vector<size_t>& parameters);
  // Writing is legal under a guard that says so; an operator that would write otherwise gets an error that names the parameter.
  std::string held() const;  // the first that a guard holds, while no operator runs; "": none
  void set_writable(size_t parameter, bool on) { residents_[parameter].writable = on; }
  bool is_writable(size_t parameter) const { return residents_[parameter].writable; }
  void store(size_t parameter);  // that is here: what was written into it goes to the source
  Source& source() { return source_; }
  // Their values have changed at the source: nothing that is here and not held may be used again.
  void forget();
  // Called once, when the order of uses has changed for the first time.
  void on_new_order(std::function<void(const std::string&)> tell) { tell_ = std::move(tell); }

  int64_t live_bytes() const { return live_bytes_; }
  int64_t peak_bytes() const { return peak_bytes_; }    // of whole parameters, coming ones included
  int64_t spare_bytes() const { return spare_bytes_; }  // kept for the next gathers
  void reset_peak() { peak_bytes_ = live_bytes_; }
  uint64_t gathers() const { return gathers_; }

 private:
  enum class State { kAway, kComing, kHere };
  struct Resident {
    std::string name, message;
    at::Tensor tensor;  // shares the parameter's storage, without its graph
    int64_t numel = 0;  // as it is counted
    int64_t bytes = 0;
    State state = State::kAway;
    int users = 0;
    bool writable = false;
    at::Tensor memory;  // [>= bytes] bytes, while it is not away
  };

  void bring(const std::vector<size_t>& parameters);  // holding mutex_
  void start(size_t parameter);
  void send_away(size_t parameter);
  void look_ahead();
  void make_room(int64_t numel);
  at::Tensor take_memory(const Resident& resident);

  const AbsenceErrors absence_errors_;  // on the thread of the program that made the engine
  Source& source_;
  Limits limits_;
  std::vector<Resident> residents_;
  std::vector<int64_t> numels_;
  Trace forward_, backward_, evaluation_;
  Trace* current_ = nullptr;
  int64_t live_ = 0;   // elements here or coming
  int64_t ahead_ = 0;  // elements coming
  int64_t live_bytes_ = 0, peak_bytes_ = 0, spare_bytes_ = 0;
  uint64_t gathers_ = 0;
  std::vector<at::Tensor> spare_;  // memory of parameters that went away
  std::function<void(const std::string&)> tell_;
  std::mutex mutex_;  // devices' autograd threads run operators side by side
};

}  // namespace gannet::zero
