// From autograd to averaged gradients in flat buffers, while backward still runs.
//
// A hook after each parameter's accumulation takes `.grad` away: on one rank the tensor itself, on several it is copied (added,
// the second time) into a flat buffer. A bucket whose parameters have all arrived is reduced at once; buckets are sent in one
// fixed order on every rank, the reverse of the parameters' order, which is about the order that backward produces them in.
//
//   no sharding        flat buffer of all gradients; all-reduce at a boundary, but for ranges whose optimizer averages the
//                      gradients of the step itself (Range::has_own_gradients): theirs stay as they are
//   sharded states     the same; reduce-scatter in place at a boundary, after which only this rank's shards are whole
//   sharded gradients  a buffer for the bucket at hand; reduce-scatter in every backward, added to this rank's shards
//   and parameters     the same; each tensor is cut for all ranks, so that the buffer has the ranks' parts of its tensors by rank
//
// Gradients kept in host memory go there from where they are made: from the bucket, or on one rank from autograd's tensor.
//
// A gradient belongs to the backward that made it. begin_backward() marks the calling thread's state, which LibTorch carries into
// the threads and the nested (re-entrant) passes of that backward; a hook that fires without the mark leaves `.grad` where
// autograd put it, and leftover() names it.
//
// Re-entrant checkpointing delivers several gradients of one parameter in one backward. How many is learned in the first one that
// is reduced: where the whole gradient has memory anyway its buckets are sent at its end. A gradient that still comes behind its
// bucket is kept apart and reduced, in the order of the buckets, at the end of backward.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "device/device_comm.h"
#include "grads/gradient_mark.h"
#include "grads/host_gradients.h"
#include "observe/timers.h"
#include "params/range.h"
#include "params/reduce_buckets.h"
#include "tensor/thread_info.h"

namespace torch::autograd {
class PostAccumulateGradHook;
}

namespace gannet {

class Reducer {
 public:
  struct Options {
    int64_t bucket_numel = 0;  // elements sent at once, where parameters are sharded; elsewhere the layout says so
    std::optional<at::ScalarType> communication_dtype;  // cast for the collective, back after
    double pre_factor = 1.0;        // gradients are multiplied by it before the all-reduce (prescale, predivide)
    bool sums_gradients = false;    // the step's gradient is the sum over the ranks, not their mean
    double post_factor = 1.0;       // and by this after it, which costs no pass: it is folded into the norm and the update
    HostGradients* host = nullptr;  // gradients are kept in its memory; null: in the device's
  };

  Reducer(std::deque<Range>& ranges, DeviceComm* comm, Timers& timers, Options options);
  ~Reducer();  // removes its own hooks, and no other engine's: the module outlives its engine
  Reducer(const Reducer&) = delete;

  // A range that was added behind the others: its parameters have joined. Legal between two backwards, gradients held or not.
  void add_range(size_t range);
  // Every parameter that has no hook, or this engine's, has this engine's when it returns. The first that has another's: its
  // name.
  std::string restore_hooks();

  // What a thread carries while this engine's backward runs on it. The scope of EngineBase::scale() outlives the call.
  using Mark = BackwardInfo;
  std::shared_ptr<Mark> mark() const { return mark_; }

  struct Backward {
    bool reduce = false;      // ranks are to be averaged: at a boundary or, where gradients are sharded, always
    bool keep_grads = false;  // create_graph: `.grad` stays with the program, a detached copy is added
    bool is_marked = false;   // the calling thread carries mark() already (EngineBase::scale)
    bool brings = true;       // gradients; false: it averages those that are gathered
  };
  void begin_backward(Backward backward);  // throws Error(kOrder) inside another backward of this engine
  void end_backward();                     // sends what is left: parameters that got no gradient count as zeros
  void abandon() noexcept;                 // after an exception in a backward: waits for what was sent, then forget()
  void wait();                             // until everything that was sent has arrived; zeroes what never got a gradient

  bool is_reduced() const { return reduced_; }
  bool is_in_backward() const { return in_backward_; }
  // Where sums over ranks are in place: back to parts of the ranks that add up to them, so that further gradients may be added.
  void unreduce();
  void wait_for_sums();  // what is gathered so far is at rest, and as it can be kept
  // What turns the buffers into this step's gradient: the average over ranks where they were summed, else 1.
  // Every range's: what its own divisor differs by is in the buffers.
  double mean_factor() const { return reduced_ ? options_.post_factor : 1.0; }
  // What turns the gradients of a rank into its own ones, where Range::has_own_gradients: nothing was summed.
  double own_factor() const { return options_.sums_gradients ? comm_->size() : 1.0; }
  // Sharded gradients between two boundaries: whether this rank's shards hold sums of earlier backwards, and that a load put some
  // there.
  bool holds_sums() const;
  void adopt_sums();
  void forget();  // the next gradient of each parameter is the first

  // Of autograd's tensors that the last step took over: bytes, at its end.
  int64_t taken_over_bytes() const { return last_taken_over_bytes_; }

  // The first parameter whose `.grad` holds values that are not this engine's; "" when there is none. A gradient of zeros, as
  // zero_grad(set_to_none = false) leaves it, is taken away. After take_cleared().
  std::string leftover();
  // Between two backwards, and before the gradients are used: those whose `.grad` the program has cleared since (zero_grad() of
  // the module or of an optimizer) are dropped, as plain LibTorch drops them. Answers the parameters' names.
  std::vector<std::string> take_cleared();
  void unmark_gradients() noexcept;  // `.grad` shows nothing of ours any more
  void drop_kept();                  // what the program keeps of a create_graph backward
  // Whether the parameter received a gradient in this step, on this rank, and the program did not clear it.
  bool has_come(const Range& range, size_t parameter) const;
  // Its `.grad` was cleared to none behind the last backward of this step: nothing updates it.
  bool is_cleared(const Range& range, size_t parameter) const;
  void count_as_come(const Range& range, size_t parameter);  // the program sets its gradient by name
  // Which gradients the program cleared in this step, as a number that all ranks must share; 0: none.
  uint64_t cleared_gradients() const { return cleared_hash_; }
  // The same of a parameter that joins now.
  void leave_out(const Range& range, size_t parameter);
  // Gradients of this rank, not averaged, of a range that add_range() has added within a step: [parameters], undefined where
  // there is none on any rank.
  void bring(size_t range, const std::vector<at::Tensor>& gradients);
  // Which buckets were reduced twice in this step, as a number that all ranks must share; 0: none.
  uint64_t late_buckets() const { return late_buckets_; }

 private:
  struct Slot {  // where the gradient of one parameter goes
    size_t range, parameter, bucket;
    bool has_arrived = false;                                 // sharded gradients: it lies in the bucket
    bool has_come = false;                                    // in this step
    bool is_foreign = false;                                  // another backward's gradient was added to `.grad`
    bool is_cleared = false;                                  // by the program, behind the last backward
    uint32_t arrivals = 0;                                    // in this backward
    uint32_t expected = 1;                                    // the most that one backward has brought
    torch::autograd::PostAccumulateGradHook* hook = nullptr;  // owned by the parameter
    GradientMark mark = {};                                   // for `.grad`
    const void* shown = nullptr;                              // TensorImpl of what `.grad` is since the last backward
    const void* shown_storage = nullptr;                      // of it: set_data() puts another there
    uint32_t shown_version = 0;                               // of it: zeros in place advance it
  };
  struct Bucket : ReduceBucket {
    size_t range;
    size_t slot;           // of its first parameter
    size_t awaited = 0;    // gradients that this backward has still to bring
    size_t expected = 0;   // the sum over its slots
    at::Tensor gathered;   // sharded gradients: [>= numel] of the running backward
    at::Tensor cast;       // [>= numel] communication dtype, where it differs
    at::Tensor arriving;   // [shard] of what comes, where that is not its last place
    bool has_sum = false;  // sharded gradients: this rank's shard holds an earlier backward's sum
    DeviceWork work;
    Timers::Clock::time_point sent{};  // while it is traced
  };
  class Hook;

  // What a range's gradients are multiplied by before they are summed.
  double pre_factor(const Range& range) const { return options_.pre_factor * range.gradient_ratio; }
  bool is_own_backward() const;
  void on_gradient(size_t slot, const at::Tensor& parameter);
  static at::Tensor as_dense(at::Tensor gradient);  // detached, real
  const Slot* find(const Range& range, size_t parameter) const;
  void mark_gradients();
  void mark_gradient(Slot& slot);
  void clear(size_t slot, bool to_none);
  void note_cleared(size_t slot, bool to_none);
  void on_foreign_gradient(size_t slot);
  void set_hook(size_t slot);
  void take_leftovers_aside();
  void give_leftovers_back();
  void add_late(size_t slot, const at::Tensor& gradient);
  void reduce_late();
  void learn_arrivals();
  void send_ready_buckets();
  void send(Bucket& bucket);
  bool accumulates_shards() const;
  bool accumulates_shards(const Bucket& bucket) const { return ranges_[bucket.range].reduction() == Reduction::kReduceScatter; }
  const std::vector<ReduceBucket::Stretch>& stretches(const Bucket& bucket, size_t slot) const {
    return bucket.of[slot - bucket.slot];
  }
  void add_buckets(size_t range);
  void add_slots(size_t bucket);
  void hold(Bucket& bucket, size_t slot, const at::Tensor& gradient);
  void put(Bucket& bucket, size_t slot, const at::Tensor& gradient);
  at::Tensor take_buffer(const Bucket& bucket, at::ScalarType dtype);
  void finish(Bucket& bucket);
  void give_back(Bucket& bucket, HostGradients::Ticket read_by = 0);
  void tell_flight(const Bucket& bucket) const;
  void zero_missing(Range& range, size_t first, size_t last);
  void finish_works();
  void let_go_of_held();

  std::deque<Range>& ranges_;
  DeviceComm* comm_;  // of the data axis; each range is summed over its own ranks
  Timers& timers_;
  Options options_;
  std::vector<Slot> slots_;
  std::deque<Bucket> buckets_;  // in the order of sending; a deque: Work does not copy
  Backward current_;
  bool in_backward_ = false;
  bool reduced_ = false;
  bool finished_ = true;  // no work is in flight
  size_t next_bucket_ = 0;
  std::deque<Bucket*> flying_;  // sharded gradients: sent, and not finished; in that order
  struct Spare {
    at::Tensor memory;                  // of the largest bucket's size
    HostGradients::Ticket read_by = 0;  // what may still read it, on its way to the host
  };
  std::vector<Spare> spare_;
  int64_t largest_bucket_ = 0;
  std::mutex mutex_;  // devices' autograd threads call hooks side by side
  std::shared_ptr<Mark> mark_ = std::make_shared<Mark>();
  int graph_task_ = -1;  // LibTorch's number of the program's own backward that is this engine's (EngineBase::scale)
  std::optional<c10::DebugInfoGuard> marked_;             // from begin_backward to end_backward, on the calling thread
  std::vector<std::pair<size_t, at::Tensor>> leftovers_;  // [slot] `.grad` of others, while a backward of ours runs
  std::map<size_t, at::Tensor> late_;                     // [bucket] its gradients that came behind it, [numel] grad_dtype
  uint64_t late_buckets_ = 0, cleared_hash_ = 0;
  int64_t taken_over_bytes_ = 0, last_taken_over_bytes_ = 0;  // the meter of the host's memory has them set aside
  bool holds_buckets_ = false;                                // this backward's are sent at its end
  bool has_learned_ = false;
};

}  // namespace gannet
