// The parameters of an engine: which there are, where their bytes lie, and who has what of their masters, gradients and optimizer
// states. Everything that training reads or writes of a parameter goes through here or through the ranges that it owns.
//
//   ParameterStore store(context, [&] { return step; });
//   store.add(group, ParameterStore::admit("h.0.weight", tensor));       // which
//   store.place(nullptr);                                                // where: rank 0's values, on every rank
//   store.add_states(store.ranges()[0], optimizer);
//   store.begin_forward(true); ... operators gather what they read ...; store.end_pass();
//   store.publish_shard(range, s); store.publish();                      // after an update: to whoever needs the new values
//
// Three layouts, by ZeRO stage and number of ranks, which Range keeps to itself:
//
//   replicated               every rank has the whole of everything
//   sharded states           stages 1 and 2: parameters whole, masters and states (and gradients) of this rank's shards
//     or gradients
//   sharded parameters       stage 3, or parameters on a tier: a rank keeps its shard of each parameter, and small ones whole; an
//                            operator that reads one gathers it
//
// Threads: the engine's thread calls everything; operators on autograd's threads gather through the residency, which locks.
// Streams: values are written on the calling thread's current stream. publish() returns when they have come.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "device/device_comm.h"
#include "params/gatherer.h"
#include "params/interception.h"
#include "params/range.h"
#include "params/rank_context.h"
#include "params/residency.h"

namespace torch::nn {
class Module;
}

namespace gannet {

class ParameterStore {
 public:
  using Named = std::vector<std::pair<std::string, at::Tensor>>;
  /// Where gradients are kept that are not in the device's memory: zeros.
  using GradientMemory = std::function<at::Tensor(int64_t numel, at::ScalarType dtype)>;

  /// `step`: the one at hand, counted from 1, for the sentences of errors.
  ParameterStore(RankContext& context, std::function<int64_t()> step) : context_(context), step_(std::move(step)) {}
  ~ParameterStore();
  ParameterStore(const ParameterStore&) = delete;

  // ---- which parameters (store.cpp)
  /// Error(kArgument): it cannot be trained.
  static TrainedParameter admit(const std::string& name, const at::Tensor& tensor);
  /// To the range of its group, dtype and placement; a new one after place(): those that have memory stay as they are.
  void add(size_t group, const TrainedParameter& parameter);
  /// Large parameters that are not trained are sharded too: a base model under adapters is most of its memory.
  void add_frozen(const torch::nn::Module& module, const std::function<bool(const void* identity)>& is_trained);
  /// The group's optimizer needs whole tensors: its ranges are cut on tensor borders, among ranks and into pages. Before place().
  void keep_whole_tensors(size_t group);
  /// And its ranges begin at multiples of `alignment` elements in their tensor, or of the largest that a call has asked for.
  /// Before place().
  void align_ranges(size_t group, int64_t alignment);
  /// The group's optimizer may average gradients itself: with several ranks every bucket divides among them. Before place().
  void let_average_itself(size_t group);
  /// In the order of TrainedParameter::index. Pointers hold until the next add().
  std::vector<const TrainedParameter*> parameters_of(size_t group) const;
  /// A frozen parameter is trained now, in another range.
  void mark_moved(const at::Tensor& parameter);

  std::deque<Range>& ranges() { return ranges_; }  // trained: a range keeps its address
  const std::deque<Range>& ranges() const { return ranges_; }
  std::deque<Range>& frozen() { return frozen_; }  // not trained, and sharded or on a tier all the same: no masters, no gradients
  const std::deque<Range>& frozen() const { return frozen_; }
  /// All of them but those that have moved.
  Named owned() const;
  bool shards_gradients() const { return !ranges_.empty() && ranges_[0].shards_gradients(); }
  /// Averaged gradients, masters and states are shards, other ones on each rank; false: every rank has all of them.
  bool is_sharded() const { return !ranges_.empty() && ranges_[0].is_sharded(); }
  bool has_experts() const;      // that ranks along the axis expert hold parts of
  int64_t bucket_numel() const;  // elements of the largest bucket of gradients
  int64_t page_numel() const;    // elements of a range's arrays that are in memory at once, where they lie on a tier

  // ---- where they lie (place.cpp)
  /// Memory of every range that has none yet, with rank 0's values on every rank. Frees the parameters' own memory.
  /// `gradient_memory`: null: the device's.
  void place(const GradientMemory& gradient_memory);
  bool is_placed(const Range& range) const { return range.param.defined(); }
  /// Arrays for the states that the optimizer asks for, with their initial values.
  void add_states(Range& range, const Optimizer& optimizer);
  /// One of them, not in use yet; undefined for a state that is no element's.
  Array make_state(const Range& range, const Optimizer::State& state) const;
  /// A moving average of the range's masters, which begins as a copy of them.
  void add_average(Range& range) const;
  void restart_average(const Range& range, size_t parameter) const;
  /// As long as the range's masters, where they lie.
  Array make_like_masters(const Range& range, const std::string& name) const;
  /// Error(kUnsupported): the optimizer does not take the range's dtypes.
  static void require_support(const Range& range, const Optimizer& optimizer);
  /// What no range has: to the device, in the training dtype.
  void place_untrained(const at::Tensor& parameter) const;

  // ---- gathered on demand (gathering.cpp): nothing happens where every parameter is whole
  zero::Residency* residency() const { return residency_.get(); }  // null: every parameter is whole
  bool gathers() const { return residency_ != nullptr; }
  /// Operators on this thread, and in the backwards that begin on it, gather what they read until disarm().
  void begin_forward(bool trains);
  void begin_backward();
  void end_backward();
  void end_pass();  // releases every parameter that no guard holds
  void disarm();
  /// The same for a thread that forward did not run on, while the answer lives; null where nothing is needed.
  std::unique_ptr<zero::Interception> arm() const;
  void meet(const char* where);  // a rank that gathers while the others are together is named
  void answer();                 // gives this rank's parts to the others until none gathers
  std::string held() const;      // a parameter that a guard holds; "": none
  void forget_gathered();        // values have changed: nothing that is here may be used again
  /// After an exception: nothing is in flight, nothing stays, no operator is seen.
  void abandon() noexcept;

  // ---- to whoever needs new values (publish.cpp)
  /// Starts to send a shard of the parameters that this rank updated to the others, where every rank has them whole.
  void publish_shard(Range& range, size_t shard);
  /// Whether it sends anything: each rank's parameters are gathered when they are read, or all ranks update all.
  static bool publishes_shards(const Range& range) { return range.is_sharded() && !range.is_gathered_on_demand_; }
  /// Until all that was sent has come, and the small parameters that stay whole beside sharded ones.
  void publish();
  void publish_all();      // parameters from their masters, on every rank
  void refresh_masters();  // and the other way, of this rank's shards: elements that are not their master's rounding

  // ---- values of one parameter (values.cpp)
  struct Found {
    Range* range;
    size_t parameter;
    TrainedParameter& get() const { return range->parameters[parameter]; }
    /// What this rank has of it; numel 0: nothing.
    zero::Part part() const;
  };
  /// Error(kNotFound), with the nearest name.
  Found find(const std::string& name);
  std::vector<std::string> names() const;
  at::Tensor own_master(const Found& found) const;    // [part numel] of this rank's part
  at::Tensor own_gradient(const Found& found) const;  // the same, as the reducer left it
  at::Tensor own_state(const Found& found, size_t state) const;
  /// What operators read of it. Where it is sharded a copy, and every rank calls it; undefined where a rank does not keep it.
  at::Tensor whole_value(const TrainedParameter& parameter, bool keeps) const;
  /// From every rank's part to the whole, in the parameter's shape, to the bit. Every rank calls it.
  at::Tensor gather(const Found& found, const at::Tensor& own) const;
  /// `flat`: [numel] the whole parameter, the same on every rank. The parameter in use follows its master.
  void set_master(const Found& found, const at::Tensor& flat);
  void set_gradient(const Found& found, const at::Tensor& flat);
  void set_state(const Found& found, size_t state, const at::Tensor& flat);
  /// The whole parameter's new values `flat`, which the module's tensor has already: this rank's parts of masters and shards.
  void keep_written(Range& range, size_t parameter, const at::Tensor& flat);
  /// Masters that keep_written() and take_in() have displaced are not put back any more: a step has updated the others.
  void forget_displaced();
  /// Values that the program put into the module: the parameter in use, and this rank's part of its master. `is_replaced`: the
  /// tensor has other memory than the engine's. `is_in_full`: the values came in more digits than the parameter has, so that
  /// every element is its master's new value; else those that differ from their master's rounding are.
  void take_in(Range& range, size_t parameter, const at::Tensor& flat, bool is_replaced, bool is_in_full);
  /// The module's tensor has the store's memory again.
  void restore_memory(Range& range, size_t parameter);
  /// Names and values of all masters, whole. `before_gathering` is called once, where ranks must come together.
  Named whole_masters(const std::function<void()>& before_gathering) const;

 private:
  at::Tensor masters_after_write(const Range& range, size_t parameter, const zero::Shard& shard, const at::Tensor& written) const;
  /// This rank's part of a parameter's masters, from the parameter's values `mine`; what they displace is kept until the step.
  void write_masters(Range& range, size_t parameter, const zero::Part& part, const at::Tensor& mine);
  Range& range_for(size_t group, const TrainedParameter& parameter);
  double gradient_ratio(const TrainedParameter& parameter) const;
  /// Elements in decisions that all ranks along data make alike, which may hold experts of other sizes: an equal share.
  int64_t counted_numel(const TrainedParameter& parameter) const;
  Placement placement_for(const TrainedParameter& parameter);
  bool is_gathered_on_demand(Placement placement) const;
  bool gathers_on_demand() const;  // any of them
  void cut_range(Range& range);
  void place_range(Range& range, const GradientMemory& gradient_memory);
  void keep_part(Range& range, size_t bucket, const at::Tensor& whole);
  void shard_parameter(Range& range, size_t parameter, const at::Tensor& whole);
  void report_drive();
  Array make_param(const Range& range) const;
  Array make_array(const std::shared_ptr<Offload>& tier, int64_t numel, at::ScalarType dtype, const std::string& name) const;
  void make_residency();
  void all_gather_persistent(Range& range);
  void broadcast_persistent(Range& range);
  void finish_publishing();
  std::vector<zero::Shard> in_parts(const zero::Shard& shard) const;

  RankContext& context_;
  std::function<int64_t()> step_;
  std::deque<Range> ranges_;
  std::deque<Range> frozen_;
  std::set<size_t> whole_groups_;         // that keep whole tensors
  std::set<size_t> averaging_groups_;     // whose optimizers may average gradients themselves
  std::map<size_t, int64_t> alignments_;  // of groups
  std::vector<size_t> group_sizes_;       // [groups] parameters
  std::vector<TensorLines> group_lines_;  // [groups] of the last one
  uint64_t added_ = 0;                    // parameters
  size_t placed_ = 0;                     // ranges_[0, placed_) have memory
  bool is_placed_ = false;                // place() has been called
  int64_t off_the_drive_ = 0;     // elements of this rank that max_in_cpu has kept off the drive: first come, first served
  int64_t persistent_numel_ = 0;  // of parameters too small to be sharded
  std::unique_ptr<Gatherer> gatherer_;
  std::unique_ptr<zero::Residency> residency_;
  std::unique_ptr<zero::Interception> interception_;  // from forward to step
  std::vector<DeviceWork> publishing_;
};

/// What parameters are trained in: fp16 or bf16 where the config says so, else as the program made them.
std::optional<at::ScalarType> training_dtype(const config::Settings& settings);
at::ScalarType scalar_type(config::DType type);

}  // namespace gannet
