// Owns an engine's parameters: their memory, and which rank holds which part of their masters,
// gradients and optimizer states. All training code reads and writes parameters through this store
// or its ranges.
//
//   ParameterStore store(context, [&] { return step; });
//   store.add(group, ParameterStore::admit("h.0.weight", tensor));       // registers
//   store.place(nullptr);                                                // allocates, and puts rank 0's values on every rank
//   store.add_states(store.ranges()[0], optimizer);
//   store.begin_forward(true); ... operators gather what they read ...; store.end_pass();
//   store.publish_shard(range, s); store.publish();                      // distributes updated values
//
// There are three layouts, by ZeRO stage and number of ranks, which Range hides:
//
//   replicated               every rank has everything in full
//   sharded states           stages 1 and 2: full parameters, but masters and states (and gradients) of this rank's shards only
//     or gradients
//   sharded parameters       stage 3, or parameters on a tier: a rank keeps its shard of each parameter, and small ones in full;
//                            a sharded one is gathered when an operator reads it
//
// Threads: the engine's thread makes all calls. Operators on autograd's threads gather through the
// residency, which takes a lock.
// Streams: values are written on the calling thread's current stream. publish() returns when they
// have arrived.
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
  using NamedParameters = std::vector<std::pair<std::string, at::Tensor>>;
  /// Allocates zeroed memory for gradients that are kept outside device memory.
  using GradientMemory = std::function<at::Tensor(int64_t numel, at::ScalarType dtype)>;

  /// `step` returns the current step, counted from 1, for error messages.
  ParameterStore(RankContext& context, std::function<int64_t()> step) : context_(context), step_(std::move(step)) {}
  ~ParameterStore();
  ParameterStore(const ParameterStore&) = delete;

  // ---- registration (store.cpp)
  /// Throws Error(kArgument) if the tensor cannot be trained.
  static TrainedParameter admit(const std::string& name, const at::Tensor& tensor);
  /// Adds the parameter to the range of its group, dtype and placement. After place() this is a new
  /// range, since placed ranges do not change.
  void add(size_t group, const TrainedParameter& parameter);
  /// Large untrained parameters are sharded as well: a base model under adapters uses most of the
  /// memory.
  void add_frozen(const torch::nn::Module& module, const std::function<bool(const void* identity)>& is_trained);
  /// For an optimizer that needs whole tensors: cuts the group's ranges at tensor boundaries, both
  /// among ranks and into pages. Call before place().
  void keep_whole_tensors(size_t group);
  /// Aligns the group's ranges to multiples of `alignment` elements in their tensor. The largest
  /// value of all calls applies. Call before place().
  void align_ranges(size_t group, int64_t alignment);
  /// For an optimizer that may average gradients itself: makes every bucket's length divisible by
  /// the number of ranks. Call before place().
  void set_optimizer_reduced(size_t group);
  /// In the order of TrainedParameter::index. Pointers stay valid until the next add().
  std::vector<const TrainedParameter*> parameters_of(size_t group) const;
  /// Marks a frozen parameter that is now trained, in another range.
  void mark_moved(const at::Tensor& parameter);

  std::deque<Range>& ranges() { return ranges_; }  // trained; ranges have stable addresses
  const std::deque<Range>& ranges() const { return ranges_; }
  std::deque<Range>& frozen() { return frozen_; }  // untrained, but sharded or on a tier; no masters, no gradients
  const std::deque<Range>& frozen() const { return frozen_; }
  /// All parameters, trained and frozen, except those marked as moved.
  NamedParameters owned() const;
  bool shards_gradients() const { return !ranges_.empty() && ranges_[0].shards_gradients(); }
  /// True if averaged gradients, masters and states are shards that differ between ranks; false if
  /// every rank has all of them.
  bool is_sharded() const { return !ranges_.empty() && ranges_[0].is_sharded(); }
  bool has_experts() const;      // whether any parameter is split along the expert axis
  int64_t bucket_numel() const;  // limit for a bucket of gradients, in elements; a larger tensor gets its own
  int64_t page_numel() const;    // elements of a page, the unit in which arrays on a tier are loaded

  // ---- memory (place.cpp)
  /// Allocates every range that has no memory yet, copies rank 0's values to every rank, and frees
  /// the parameters' original memory. `gradient_memory` null: device memory.
  void place(const GradientMemory& gradient_memory);
  bool is_placed(const Range& range) const { return range.param.defined(); }
  /// Allocates the states that the optimizer declares, with their initial values.
  void add_states(Range& range, const Optimizer& optimizer);
  /// Allocates one of those states without adding it to the range; undefined for a state that is
  /// not cut along elements.
  Array make_state(const Range& range, const Optimizer::State& state) const;
  /// Adds a moving average of the range's masters, which starts as a copy of them.
  void add_average(Range& range) const;
  void restart_average(const Range& range, size_t parameter) const;
  /// An array of the masters' size, in their tier.
  Array make_like_masters(const Range& range, const std::string& name) const;
  /// Throws Error(kUnsupported) if the optimizer does not support the range's dtypes.
  static void require_support(const Range& range, const Optimizer& optimizer);
  /// Moves a parameter that is in no range to the device, in the training dtype.
  void place_untrained(const at::Tensor& parameter) const;

  // ---- gathering on demand (gathering.cpp); no-ops if every parameter is whole
  zero::Residency* residency() const { return residency_.get(); }  // null: no parameter is gathered on demand
  bool gathers() const { return residency_ != nullptr; }
  /// Until disarm(), operators on this thread and in the backward passes that it starts gather the
  /// parameters that they read.
  void begin_forward(bool trains);
  void begin_backward();
  void end_backward();
  void end_pass();  // releases every parameter that no guard holds
  void disarm();
  /// Lets operators on a thread other than forward's gather the parameters that they read, for the
  /// lifetime of the result. Returns null if this is not needed.
  std::unique_ptr<zero::Interception> arm() const;
  void meet(const char* where);  // reports a rank that gathers while the others meet
  void answer();                 // contributes this rank's shards to the other ranks' gathers until every rank is done
  std::string held() const;      // name of a parameter that a guard holds; "": none
  void forget_gathered();        // values have changed: gathered copies must not be reused
  /// Cleans up after an exception: nothing stays in flight or gathered, and no operator is
  /// intercepted.
  void abandon() noexcept;

  // ---- distribution of new values (publish.cpp)
  /// Starts sending the other ranks a shard that this rank has updated, if every rank has the
  /// full parameters.
  void publish_shard(Range& range, size_t shard);
  /// False if parameters are gathered when they are read, or if all ranks update everything.
  static bool publishes_shards(const Range& range) { return range.is_sharded() && !range.is_gathered_on_demand_; }
  /// Sends the small parameters that stay unsharded alongside sharded ones, and waits until
  /// everything sent has arrived.
  void publish();
  void publish_all();      // copies masters to parameters, on every rank
  void refresh_masters();  // copies this rank's shards to masters, except elements that equal their master's rounding

  // ---- values of one parameter (values.cpp)
  struct FoundParameter {
    Range* range;
    size_t parameter;
    TrainedParameter& get() const { return range->parameters[parameter]; }
    /// This rank's part of the parameter; numel 0: it has none.
    zero::TensorPart part() const;
  };
  /// Throws Error(kNotFound) with the nearest name.
  FoundParameter find(const std::string& name);
  std::vector<std::string> names() const;
  at::Tensor shard_master(const FoundParameter& found) const;    // [part numel] the masters of this rank's part
  at::Tensor shard_gradient(const FoundParameter& found) const;  // likewise, the gradient from the reducer
  at::Tensor shard_state(const FoundParameter& found, size_t state) const;
  /// The value that operators read. For a sharded parameter this is a collective call that returns
  /// a copy, or an undefined tensor on ranks with `keeps` false.
  at::Tensor whole_value(const TrainedParameter& parameter, bool keeps) const;
  /// Assembles the value from every rank's part, bit for bit, in the parameter's shape. Collective.
  at::Tensor gather(const FoundParameter& found, const at::Tensor& own) const;
  /// `flat`: [numel] the values of the whole parameter, the same on every rank. Updates the
  /// parameter in use as well.
  void set_master(const FoundParameter& found, const at::Tensor& flat);
  void set_gradient(const FoundParameter& found, const at::Tensor& flat);
  void set_state(const FoundParameter& found, size_t state, const at::Tensor& flat);
  /// Stores new values that the module's tensor already holds: writes this rank's parts of masters
  /// and shards. `flat` is the whole parameter.
  void keep_written(Range& range, size_t parameter, const at::Tensor& flat);
  /// Drops the masters that keep_written() and take_in() have displaced, because a step has updated
  /// the current ones.
  void forget_displaced();
  /// Stores values that the program put into the module: in the parameter in use, and in this rank's
  /// part of its master. `is_replaced`: the tensor's memory is no longer the engine's.
  /// `is_in_full`: the values are more precise than the parameter's dtype, so every element
  /// replaces its master. Otherwise only elements that differ from their master's rounding do.
  void take_in(Range& range, size_t parameter, const at::Tensor& flat, bool is_replaced, bool is_in_full);
  /// Makes the module's tensor use the store's memory again.
  void restore_memory(Range& range, size_t parameter);
  /// Names and full values of all masters. Calls `before_gathering` once if ranks must
  /// synchronise.
  NamedParameters whole_masters(const std::function<void()>& before_gathering) const;

 private:
  at::Tensor masters_after_write(const Range& range, size_t parameter, const zero::Shard& shard, const at::Tensor& written) const;
  /// Writes this rank's part of a parameter's masters from the parameter's values `mine`. Displaced
  /// masters are kept until the step.
  void write_masters(Range& range, size_t parameter, const zero::TensorPart& part, const at::Tensor& mine);
  Range& range_for(size_t group, const TrainedParameter& parameter);
  double gradient_ratio(const TrainedParameter& parameter) const;
  /// The number of elements to use in decisions that must be the same on all ranks along data. For
  /// experts, which may have different numbers of elements on each rank, it is an equal share.
  int64_t counted_numel(const TrainedParameter& parameter) const;
  Placement placement_for(const TrainedParameter& parameter);
  bool is_gathered_on_demand(Placement placement) const;
  bool gathers_on_demand() const;  // whether any range is gathered on demand
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
  std::set<size_t> whole_groups_;         // groups that keep whole tensors
  std::set<size_t> averaging_groups_;     // groups with optimizers that may average gradients themselves
  std::map<size_t, int64_t> alignments_;  // by group
  std::vector<size_t> group_sizes_;       // [groups] number of parameters
  std::vector<TensorLines> group_lines_;  // [groups] the rows and columns of the last parameter
  uint64_t added_ = 0;                    // number of parameters added so far
  size_t placed_ = 0;                     // ranges_[0, placed_) have memory
  bool is_placed_ = false;                // place() has been called
  int64_t off_the_drive_ = 0;             // elements of this rank kept off the drive by max_in_cpu, first come first served
  int64_t persistent_numel_ = 0;          // elements of parameters that are too small to be sharded
  std::unique_ptr<Gatherer> gatherer_;
  std::unique_ptr<zero::Residency> residency_;
  std::unique_ptr<zero::Interception> interception_;  // set from forward to step
  std::vector<DeviceWork> publishing_;
};

/// The dtype that parameters are trained in: fp16 or bf16 if configured; nullopt: as the program made
/// them.
std::optional<at::ScalarType> training_dtype(const config::Settings& settings);
at::ScalarType scalar_type(config::DType type);

}  // namespace gannet
