// Reduces autograd's gradients to averages in flat buffers while backward is still running.
//
// A hook after each parameter's accumulation takes `.grad`. On one rank it keeps the tensor itself;
// on several ranks it copies the gradient to a flat buffer, or adds it there if the buffer already
// has one. A bucket is reduced as soon as all its gradients have arrived. Every rank sends buckets
// in the same fixed order, the reverse of the parameters' order, which is roughly the order in
// which backward produces them.
//
//   no sharding        a flat buffer of all gradients; all-reduce at a boundary, except for ranges
//                      whose optimizer averages this step's gradients (Range::has_unreduced_gradients)
//   sharded states     the same; reduce-scatter in place at a boundary, after which only this
//                      rank's shards are valid
//   sharded gradients  a buffer for the current bucket; reduce-scatter in every backward, added to
//                      this rank's shards
//   and parameters     the same; each tensor is cut for all ranks, so the buffer groups the
//                      tensors' parts by rank
//
// Gradients kept in host memory are copied there from the bucket or, on one rank, from autograd's
// tensor.
//
// A gradient belongs to the backward that made it. begin_backward() marks the calling thread's
// state, which LibTorch carries into the threads and the nested (re-entrant) passes of that
// backward. A hook that fires without the mark leaves `.grad` where autograd put it, and leftover()
// reports it.
//
// Re-entrant checkpointing delivers several gradients of one parameter in one backward. The first
// backward that is reduced counts them; unless gradients are sharded, its buckets are sent at its
// end. A gradient that arrives after its bucket was sent is kept separately and reduced at the end
// of backward, in bucket order.
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
    int64_t bucket_numel = 0;  // elements per bucket if parameters are sharded; otherwise the layout decides
    std::optional<at::ScalarType> communication_dtype;  // gradients are cast to it for the collective, and back afterwards
    double pre_factor = 1.0;                            // applied to gradients before they are summed (prescale, predivide)
    bool sums_gradients = false;                        // the step's gradient is the sum over the ranks, not their mean
    double post_factor = 1.0;       // applied afterwards without a pass: it is folded into the norm and the update
    HostGradients* host = nullptr;  // keeps gradients in host memory; null: device memory
  };

  Reducer(std::deque<Range>& ranges, DeviceComm* comm, Timers& timers, Options options);
  ~Reducer();  // removes only its own hooks: the module outlives its engine
  Reducer(const Reducer&) = delete;

  // Adds a range after the others, for parameters that have joined. May be called between two
  // backward passes, whether or not gradients are held.
  void add_range(size_t range);
  // Installs this engine's hook on every parameter that has no hook. Returns the name of the first
  // parameter that has another engine's hook, or "".
  std::string restore_hooks();

  // The mark that threads carry while this engine's backward runs on them. The scope of
  // EngineBase::scale() keeps it beyond the call.
  using BackwardMark = BackwardInfo;
  std::shared_ptr<BackwardMark> mark() const { return mark_; }

  struct BackwardSettings {
    bool reduce = false;        // gradients are reduced over the ranks: at a boundary or, if they are sharded, always
    bool keep_grads = false;    // create_graph: `.grad` stays with the program, a detached copy is added
    bool is_marked = false;     // the calling thread already carries mark() (EngineBase::scale)
    bool inputs_alone = false;  // computes no parameter's gradient (grads/split_backward.h): if one arrives, it is an error
    bool brings = true;         // backward produces gradients; false: it only averages those already accumulated
  };
  void begin_backward(BackwardSettings backward);  // throws Error(kOrder) inside another backward of this engine
  void end_backward();                             // sends the remaining buckets; parameters without a gradient count as zeros
  void abandon() noexcept;  // after an exception in backward: waits for the collectives in flight, then forget()
  void wait();              // waits until everything sent has arrived; zeroes gradients that never arrived

  bool is_reduced() const { return reduced_; }
  bool is_in_backward() const { return in_backward_; }
  // Undoes an in-place reduction, so that the ranks' buffers again sum to the total and further
  // gradients can be added.
  void unreduce();
  void wait_for_sums();  // makes the gradients so far ready to be saved, with nothing in flight
  // The factor that converts the buffers to this step's gradient: Options::post_factor if they were
  // summed over the ranks, else 1. It is the same for all ranges, because the buffers already
  // include each range's gradient_ratio.
  double mean_factor() const { return reduced_ ? options_.post_factor : 1.0; }
  // The factor for a rank's gradients in ranges with Range::has_unreduced_gradients, where nothing
  // was summed.
  double unreduced_factor() const { return options_.sums_gradients ? comm_->size() : 1.0; }
  // For sharded gradients between two boundaries. holds_sums(): whether this rank's shards hold
  // sums of earlier backward passes. adopt_sums(): a load has stored such sums there.
  bool holds_sums() const;
  void adopt_sums();
  void forget();  // the next gradient of each parameter counts as its first

  // Bytes of autograd tensors that the engine had taken over by the end of the last step.
  int64_t taken_over_bytes() const { return last_taken_over_bytes_; }

  // The first parameter with values in `.grad` that are not from this engine; "" if there is
  // none. Removes a `.grad` of zeros, which zero_grad(set_to_none = false) leaves. Call this after
  // take_cleared().
  std::string leftover();
  // Drops the gradients that the program has cleared through `.grad` since the last backward
  // (zero_grad() of the module or of an optimizer), as plain LibTorch does. Called between two
  // backward passes and before gradients are used. Returns the parameters' names.
  std::vector<std::string> take_cleared();
  void unmark_gradients() noexcept;  // removes this engine's marks from `.grad`
  void drop_kept();                  // drops the `.grad` that a create_graph backward left with the program
  // Whether, in this step, the parameter received a gradient on this rank that the program has not
  // cleared.
  bool has_come(const Range& range, size_t parameter) const;
  // Whether the parameter's `.grad` was cleared to none after the last backward of this step, so
  // that the update skips the parameter.
  bool is_cleared(const Range& range, size_t parameter) const;
  void count_as_come(const Range& range, size_t parameter);  // for a gradient that the program sets by name
  // Hash of the gradients that the program cleared in this step; must be the same on all ranks. 0:
  // none.
  uint64_t cleared_gradients() const { return cleared_hash_; }
  // Counts a parameter that joins now as cleared.
  void leave_out(const Range& range, size_t parameter);
  // Takes this rank's gradients, not averaged, for a range that add_range() has added within a
  // step. `gradients`: [parameters], undefined where no rank has a gradient.
  void bring(size_t range, const std::vector<at::Tensor>& gradients);
  // Hash of the buckets that were reduced twice in this step; must be the same on all ranks. 0:
  // none.
  uint64_t late_buckets() const { return late_buckets_; }

 private:
  struct GradientSlot {  // destination of one parameter's gradient
    size_t range, parameter, bucket;
    bool has_arrived = false;                                 // for sharded gradients: the gradient is in the bucket
    bool has_come = false;                                    // a gradient has arrived in this step
    bool is_foreign = false;                                  // another backward's gradient was added to `.grad`
    bool is_cleared = false;                                  // the program cleared it after the last backward
    uint32_t arrivals = 0;                                    // number of gradients that have arrived in this backward
    uint32_t expected = 1;                                    // the maximum number of gradients in any backward so far
    torch::autograd::PostAccumulateGradHook* hook = nullptr;  // owned by the parameter
    GradientMark mark = {};                                   // the mark to put in `.grad`
    const void* shown = nullptr;                              // TensorImpl that `.grad` had after the last backward
    const void* shown_storage = nullptr;                      // its storage, which set_data() replaces
    uint32_t shown_version = 0;                               // its version, which zeroing in place increments
  };
  struct Bucket : ReduceBucket {
    size_t range;
    size_t slot;           // the slot of its first parameter
    size_t awaited = 0;    // number of gradients still expected in this backward
    size_t expected = 0;   // the sum of `expected` over its slots
    at::Tensor gathered;   // sharded gradients: [>= numel] the gradients of the current backward
    at::Tensor cast;       // [>= numel] the gradients in the communication dtype, if it differs
    at::Tensor arriving;   // [shard] the received sum, unless it arrives at its destination
    bool has_sum = false;  // sharded gradients: this rank's shard holds an earlier backward's sum
    DeviceWork work;
    Timers::Clock::time_point sent{};  // set while traced
  };
  class Hook;

  // The factor for a range's gradients before they are summed.
  double pre_factor(const Range& range) const { return options_.pre_factor * range.gradient_ratio; }
  bool is_backward_of_engine() const;
  void on_gradient(size_t slot, const at::Tensor& parameter);
  static at::Tensor as_dense(at::Tensor gradient);  // returns it dense, detached and real
  const GradientSlot* find(const Range& range, size_t parameter) const;
  void mark_gradients();
  void mark_gradient(GradientSlot& slot);
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
  void trace_transfer(const Bucket& bucket) const;
  void zero_missing(Range& range, size_t first, size_t last);
  void finish_works();
  void let_go_of_held();

  std::deque<Range>& ranges_;
  DeviceComm* comm_;  // Comm of the data axis; each range is summed over its own ranks
  Timers& timers_;
  Options options_;
  std::vector<GradientSlot> slots_;
  std::deque<Bucket> buckets_;  // in sending order; a deque, because a Work cannot be copied
  BackwardSettings current_;
  bool in_backward_ = false;
  bool reduced_ = false;
  bool finished_ = true;  // no work is in flight
  size_t next_bucket_ = 0;
  std::deque<Bucket*> flying_;  // sharded gradients: the buckets sent and not yet finished, in sending order
  struct SpareBuffer {
    at::Tensor memory;                  // has the size of the largest bucket
    HostGradients::Ticket read_by = 0;  // the transfer to the host that may still read it
  };
  std::vector<SpareBuffer> spare_;
  int64_t largest_bucket_ = 0;
  std::mutex mutex_;  // autograd threads of several devices call hooks concurrently
  std::shared_ptr<BackwardMark> mark_ = std::make_shared<BackwardMark>();
  int graph_task_ = -1;  // id of a backward started by the program that counts as this engine's (EngineBase::scale)
  std::optional<c10::DebugInfoGuard> marked_;             // set from begin_backward to end_backward, on the calling thread
  std::vector<std::pair<size_t, at::Tensor>> leftovers_;  // (slot, foreign `.grad`), set aside
  std::map<size_t, at::Tensor> late_;                     // by bucket: gradients that arrived after its send, [numel] grad_dtype
  uint64_t late_buckets_ = 0, cleared_hash_ = 0;
  int64_t taken_over_bytes_ = 0, last_taken_over_bytes_ = 0;  // subtracted from the host memory meter
  bool holds_buckets_ = false;                                // this backward sends its buckets at its end
  bool has_learned_ = false;
};

}  // namespace gannet
