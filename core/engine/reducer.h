// From autograd to averaged gradients in flat buffers, while backward still runs.
//
// A hook after each parameter's accumulation takes `.grad` away: on one rank the tensor itself, on several it is copied (added,
// the second time) into the range's flat buffer. At a boundary, a bucket whose parameters have all arrived is all-reduced at once; buckets are sent in one
// fixed order on every rank, the reverse of the parameters' order, which is about the order that backward produces them in.
#pragma once

#include "engine/range.h"
#include "interfaces/comm.h"

#include <deque>
#include <mutex>
#include <optional>
#include <vector>

namespace gannet {

class Reducer {
 public:
  struct Options {
    int64_t bucket_numel = 0;
    std::optional<at::ScalarType> communication_dtype;  // cast for the collective, back after
    double pre_factor = 1.0;    // gradients are multiplied by it before the all-reduce (prescale, predivide)
    double post_factor = 1.0;   // and by this after it, which costs no pass: it is folded into the norm and the update
  };

  Reducer(std::vector<Range>& ranges, CommGroup* comm, Options options);
  ~Reducer();  // removes the hooks: the module outlives its engine
  Reducer(const Reducer&) = delete;

  struct Backward {
    bool reduce = false;        // this is a boundary and ranks are to be averaged
    bool keep_grads = false;    // create_graph: `.grad` stays with the program, a detached copy is added
  };
  void begin_backward(Backward backward);
  void end_backward();          // sends what is left: parameters that got no gradient count as zeros
  void wait();                  // until everything that was sent has arrived; zeroes what never got a gradient

  bool is_reduced() const { return reduced_; }
  // What turns the buffers into this step's gradient: the average over ranks where they were summed, else 1.
  double mean_factor() const { return reduced_ ? options_.post_factor : 1.0; }
  void forget();                // the next gradient of each parameter is the first

 private:
  struct Slot {  // where the gradient of one parameter goes
    size_t range, parameter, bucket;
  };
  struct Bucket {
    size_t range;
    size_t first, last;         // parameters [first, last) of the range
    int64_t offset, numel;      // elements of the flat buffer
    size_t awaited = 0;
    at::Tensor cast;            // [numel] communication dtype, where it differs
    Work work;
  };
  class Hook;

  void on_gradient(size_t slot, const at::Tensor& parameter);
  void send_ready_buckets();
  void send(Bucket& bucket);
  void hold(Range& range, TrainedParameter& parameter, const at::Tensor& gradient);
  void zero_missing(Range& range, size_t first, size_t last);
  void finish_works();

  std::vector<Range>& ranges_;
  CommGroup* comm_;
  Options options_;
  std::vector<Slot> slots_;
  std::deque<Bucket> buckets_;  // in the order of sending; a deque: Work does not copy
  Backward current_;
  bool in_backward_ = false;
  bool reduced_ = false;
  bool finished_ = true;        // no work is in flight
  size_t next_bucket_ = 0;
  std::mutex mutex_;            // devices' autograd threads call hooks side by side
  std::shared_ptr<bool> alive_; // hooks of a dead engine do nothing
};

}  // namespace gannet
