// Gathers parameters when an operator reads them and releases them afterwards (ZeRO stage 3,
// parameters on a slower tier).
//
//   Residency residency(source, limits);
//   const size_t id = residency.add("h.0.weight", parameter);   // frees its bytes; its shape, dtype and identity stay
//   residency.begin(Residency::Pass::kForward);
//   residency.acquire({id});                                    // called for operators by interception.h
//   residency.release({id});
//
// The order of uses is recorded (trace.h). Once it is known, upcoming parameters are prefetched,
// and those that will soon be used again are kept. Only that order and the limits decide what to
// gather and release, so that all ranks make the same decisions.
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

// The source of full parameters: the other ranks' shards, or a slower tier.
class ParameterSource {
 public:
  virtual ~ParameterSource() = default;
  virtual int64_t numel_to_gather(size_t parameter) const = 0;        // elements of the buffer that start() fills, with padding
  virtual void start(size_t parameter, const at::Tensor& whole) = 0;  // begins to fill `whole`, at launch() at the latest
  virtual void launch() {}                                            // those started since the last call belong together
  virtual void finish(size_t parameter) = 0;                          // waits until `whole` is filled
  virtual void keep(size_t, const at::Tensor& whole) { static_cast<void>(whole); }  // an operator has written to `whole`
  // Accepts new values: `read` fills in the elements that this rank has. The parameter must not be
  // in use during the call. Returns false if the source does not support this.
  virtual bool write(size_t, ReadElements) { return false; }
  virtual void released(size_t) {}  // called once the parameter belongs to another owner
  // A pass follows a known order of uses. Whatever is gathered until end_order() or leave_order()
  // depends only on what `hash` is a hash of. leave_order: the uses are others from here on.
  // Returns whether the source fills parameters in batches.
  virtual bool begin_order(uint64_t hash) {
    static_cast<void>(hash);
    return false;
  }
  virtual void leave_order() {}
  virtual void end_order() {}
  virtual void drop(size_t parameter) noexcept = 0;  // cancels a pending gather; returns once it is no longer in flight
};

class Residency {
 public:
  struct Limits {                            // in elements
    int64_t prefetch = 50'000'000;           // maximum prefetched at a time
    int64_t live = 1'000'000'000;            // maximum present or in flight, unless an operator needs more
    int64_t reuse_distance = 1'000'000'000;  // a parameter is kept if it is used again within fewer elements
  };
  enum class Pass { kForward, kBackward, kEvaluation };

  Residency(ParameterSource& source, Limits limits);
  ~Residency();  // a module that outlives its engine keeps its parameters' shapes; a read throws an error with the name
  Residency(const Residency&) = delete;

  // `where` completes the error message of a read outside an operator: "parameter 'x' " + where.
  // `counted`: the number of elements used for limits and the order of gathers, which must be the
  // same on every rank; 0: the parameter's own number.
  size_t add(const std::string& name, const at::Tensor& parameter, const std::string& where, int64_t counted = 0);
  size_t size() const { return residents_.size(); }
  const std::string& name(size_t parameter) const { return residents_[parameter].name; }
  at::Tensor tensor(size_t parameter) const { return residents_[parameter].tensor; }

  void begin(Pass pass);
  // A hash of all that decides what the next forward and its backward gather; 0: their orders of uses
  // are not known.
  uint64_t order() const;
  void end();  // ends the stretch, and releases every parameter that no guard holds
  const char* stretch_name() const;

  void acquire(const std::vector<size_t>& parameters);  // for an operator; the use becomes part of the recorded order
  void hold(const std::vector<size_t>& parameters);     // for a guard; the use is not recorded
  void release(const std::vector<size_t>& parameters);
  // Writes are legal only under a guard that permits them. Any other operator that would write gets
  // an error that names the parameter.
  std::string held() const;  // the first parameter that a guard holds, between operators; "": none
  void set_writable(size_t parameter, bool on) { residents_[parameter].writable = on; }
  bool is_writable(size_t parameter) const { return residents_[parameter].writable; }
  void store(size_t parameter);  // sends the values written into a present parameter to its source
  ParameterSource& source() { return source_; }
  // Values have changed at the source: releases every present parameter that is not held.
  void forget();
  // `tell` is called once, the first time that the order of uses changes.
  void on_new_order(std::function<void(const std::string&)> tell) { tell_ = std::move(tell); }

  int64_t live_bytes() const { return live_bytes_; }
  int64_t peak_bytes() const { return peak_bytes_; }    // peak of live_bytes(): full parameters, including those in flight
  int64_t spare_bytes() const { return spare_bytes_; }  // bytes of the buffers kept for later gathers
  void reset_peak() { peak_bytes_ = live_bytes_; }
  uint64_t gathers() const { return gathers_; }

 private:
  enum class State { kAway, kComing, kHere };
  struct ResidentParameter {
    std::string name, message;
    at::Tensor tensor;  // shares the parameter's storage, without its graph
    int64_t numel = 0;  // number of elements counted for limits, see add()
    int64_t bytes = 0;
    State state = State::kAway;
    int users = 0;
    bool writable = false;
    at::Tensor memory;  // at least `bytes` bytes; undefined while the parameter is away
  };

  uint64_t known_order() const;                       // order(); requires mutex_
  void bring(const std::vector<size_t>& parameters);  // requires mutex_
  void start(size_t parameter);
  void send_away(size_t parameter);
  void look_ahead();
  void leave_order();
  void end_order();
  void make_room(int64_t numel);
  at::Tensor take_memory(const ResidentParameter& resident);

  const AbsenceErrors absence_errors_;  // on the thread that made the engine
  ParameterSource& source_;
  Limits limits_;
  std::vector<ResidentParameter> residents_;
  std::vector<int64_t> numels_;
  Trace forward_, backward_, evaluation_;
  Trace* current_ = nullptr;
  int64_t live_ = 0;   // elements present or in flight
  int64_t ahead_ = 0;  // elements in flight
  int64_t live_bytes_ = 0, peak_bytes_ = 0, spare_bytes_ = 0;
  uint64_t gathers_ = 0;
  std::vector<at::Tensor> spare_;  // buffers of released parameters
  std::function<void(const std::string&)> tell_;
  mutable std::mutex mutex_;  // autograd threads of several devices run operators concurrently
  bool in_batches_ = false;   // the source fills parameters in batches, until the order is left
};

}  // namespace gannet::zero
