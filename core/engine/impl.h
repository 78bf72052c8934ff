// What an engine holds. The phases of its step are in step.cpp, its construction in initialize.cpp.
#pragma once

#include <gannet/checkpoint.h>
#include <gannet/engine.h>
#include <gannet/initialize.h>

#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "config/resolve.h"
#include "control/facts.h"
#include "control/watch.h"
#include "device/accelerator.h"
#include "device/device_comm.h"
#include "engine/ownership.h"
#include "engine/profiling.h"
#include "engine/progress.h"
#include "engine/step_reporter.h"
#include "grads/check.h"
#include "grads/host_gradients.h"
#include "grads/loss_scaler.h"
#include "grads/reducer.h"
#include "grads/skip_policy.h"
#include "interfaces/host.h"
#include "interfaces/host_group.h"
#include "mesh/groups.h"
#include "observe/timers.h"
#include "observe/trace.h"
#include "params/gatherer.h"
#include "params/interception.h"
#include "params/range.h"
#include "plugin/plugin.h"
#include "state/checkpoint_writer.h"
#include "update/host_update.h"
#include "update/schedule.h"

namespace gannet {

inline at::ScalarType scalar_type(config::DType type) {
  switch (type) {
    case config::DType::kFloat16:
      return at::kHalf;
    case config::DType::kBFloat16:
      return at::kBFloat16;
    default:
      return at::kFloat;
  }
}

class StepScope;
struct StepInputs;

uint32_t next_number_in(const std::string& group);  // agreed.cpp

struct EngineBase::Impl {
  std::shared_ptr<void> self{this, [](void*) {}};  // handles hold it weakly
  std::shared_ptr<torch::nn::Module> module;
  config::Resolved resolved;
  const config::Settings& settings() const { return resolved.settings; }

  // Order matters: plugins' objects die before the host table they were made with.
  Host host;
  std::unique_ptr<plugin::Registry> registry;
  std::unique_ptr<Accelerator> accelerator;
  std::shared_ptr<ProcessGroup> process_group;
  std::shared_ptr<MeshGroups> mesh;                   // of process_group's ranks
  std::unique_ptr<DeviceComm> comm;                   // of the data axis: tensors
  HostGroup* host_group = nullptr;                    // of the data axis: numbers and texts
  HostGroup* world_group = nullptr;                   // of all ranks of the mesh: they agree, save and report together
  bool is_first() const { return mesh->is_first(); }  // it prints for all
  // The ranks whose calls and facts must be the same: stages of a pipeline have parameters of their own.
  HostGroup& watched_group() const { return mesh->shape().size(kPipeAxis) > 1 ? *host_group : *world_group; }
  at::Device device{at::kCPU};

  std::unique_ptr<observe::Trace> trace;  // null: none
  Timers timers;                          // what follows keeps its address
  std::optional<Timers::Scope> forward_timed;
  Timers::Times micro_batch_before, step_before;  // wall_clock_breakdown's

  std::shared_ptr<Offload> state_tier, param_tier;  // null: in the device's memory
  bool param_tier_is_drive = false;
  bool memory_is_apart = false;                           // the device's from the host's
  std::unique_ptr<HostGradients> host_gradients;          // null: gradients stay in the device's memory
  std::vector<std::unique_ptr<HostUpdate>> host_updates;  // [ranges], made when first needed
  std::vector<at::Tensor> spare_pages;
  std::vector<Group> groups;
  std::deque<Range> ranges;            // parameters that join later have ranges of their own: the others stay where they are
  std::deque<Range> frozen;            // parameters that are not trained and are sharded all the same: no masters, no gradients
  std::unique_ptr<Gatherer> gatherer;  // ZeRO stage 3 on several ranks, with residency
  std::unique_ptr<zero::Residency> residency;
  std::unique_ptr<zero::Interception> interception;  // from forward to step
  std::optional<control::Watch::Call> forward_call;
  int64_t persistent_numel = 0;  // of parameters too small to be shared out
  std::unique_ptr<Reducer> reducer;
  std::vector<DeviceWork> publishing;
  std::shared_ptr<torch::optim::Optimizer> user_optimizer;
  std::vector<double> user_lr_seen;  // [groups] the rate that its options had after the last update

  Schedule schedule{groups};
  LossScaler scaler = LossScaler::fixed(1.0);
  SkipPolicy skip_policy;

  Progress progress;
  bool training = true;
  bool no_sync = false;
  bool keeps_user_grads = false;  // the last backward had create_graph: `.grad` is the program's until the next one
  bool loss_was_finite = true;

  // ---- what the program does between two calls (audit.cpp, join.cpp)
  std::unique_ptr<Ownership> ownership;  // null: the engine does not train
  struct KnownParameter {
    const void* identity;
    bool is_trained;
    size_t bytes;  // of its storage: torch::load puts another one under it
  };
  std::vector<KnownParameter> known_parameters;         // of the module, in its order, tied ones as often as they are registered
  std::unordered_map<const void*, size_t> given_group;  // of each parameter that initialize was given, trained or frozen
  bool groups_are_given = false;                        // by the program: a new parameter is in none of them
  std::unordered_set<const void*> declined;             // require a gradient and are in no group: said, and left alone
  uint64_t written_hash = 0;                            // of the values that were taken in since the last step
  std::set<std::string> said;                           // messages that were logged once

  // ---- what all ranks must agree on in every step (agreed.cpp)
  std::unique_ptr<control::Facts> facts;
  struct FactRows {
    size_t micro_batch, accumulation, boundary, loss_scale, clipping, errors, frozen, written, late;
    std::vector<std::vector<size_t>> hyper;  // [groups][hyperparameters]
  } fact_rows{};

  std::unique_ptr<StepReporter> reporter;  // null: no monitor
  std::unique_ptr<Profiling> profiling;    // of a step that is to come, or runs; null: none

  // What the program keeps in checkpoints beside the engine's own.
  struct ProgramState {
    std::string name;
    std::function<Value()> save;
    std::function<void(const std::vector<Value>&)> load;  // what every rank saved, by rank
  };
  std::vector<ProgramState> program_states;
  uint32_t engine_id = 0;                               // of this process, counted
  uint32_t number_in_group = 0;                         // of the engines of this group, counted; the same on every rank
  std::set<std::string> loaded_folders;                 // that this run resumed from
  std::unique_ptr<HostGroup> saving_group;              // of writes in the background: beside what the engine's thread sends
  std::unique_ptr<CheckpointWriter> checkpoint_writer;  // the last member: it dies first, and waits for its write

  ~Impl();
  bool shards_gradients() const { return !ranges.empty() && ranges[0].shards_gradients(); }
  bool is_boundary() const { return progress.is_boundary(settings().accumulation_steps); }

  // ---- initialize.cpp, parameters.cpp: construction, in this order
  void open_and_join(const config::Document& document, const EngineOptions& options);  // and resolve
  void open_accelerator(const config::Document& document);
  void join(const config::Document& document, const EngineOptions& options);
  MeshShape wanted_mesh(const config::Document& document, const EngineOptions& options) const;
  void open_tiers(const config::Document& document);
  void collect_parameters(const EngineOptions& options);
  TrainedParameter admit(const std::string& name, const at::Tensor& tensor) const;  // Error(kArgument): it cannot be trained
  Range& range_for(size_t group, const TrainedParameter& parameter, size_t first, int64_t& off_the_drive);
  void refuse_shared_memory() const;
  void refuse_trained_elsewhere() const;
  bool is_trained() const;
  void make_residency();
  void place_untrained(const at::Tensor& parameter) const;  // to the device, in the training dtype
  void move_module();  // to the device; parameters to the training dtype and into flat buffers; rank 0's values everywhere
  void collect_frozen(const std::unordered_map<const void*, size_t>& trained, int64_t& off_the_drive);
  int64_t bucket_numel() const;
  void cut_range(Range& range);
  void place_range(Range& range);
  // `off_the_drive`: how many of a rank's elements may still be kept off it (max_in_cpu): first come, first served.
  Placement placement_for(const at::Tensor& parameter, int64_t& off_the_drive) const;
  bool is_gathered_on_demand(Placement placement) const;
  bool gathers_on_demand() const;  // any of them
  Array make_param(const Range& range) const;
  uint32_t device_index() const { return device.has_index() ? static_cast<uint32_t>(device.index()) : 0; }
  bool updates_on_host() const { return memory_is_apart && state_tier; }
  Array make_array(const std::shared_ptr<Offload>& tier, int64_t numel, at::ScalarType dtype, const std::string& name) const;
  void keep_part(Range& range, size_t bucket, const at::Tensor& whole);
  void shard_parameter(Range& range, size_t parameter, const at::Tensor& whole);
  void broadcast(const at::Tensor& tensor, uint32_t root = 0);
  void broadcast_sparse(const at::Tensor& tensor, uint32_t root);
  void open_optimizer(const config::Document& document, const EngineOptions& options);
  void check_fit();
  void create_states();  // the optimizer's, and the reducer
  void create_states(Range& range);
  void create_scheduler(const config::Document& document, const EngineOptions& options);
  bool is_whole_world() const;
  void agree(const std::string& what, const std::string& text);
  void agree_on_model();
  void agree_on_plugins();

  // ---- audit.cpp, join.cpp: what the program did to the parameters since the engine left them
  void audit();  // takes in what can be, throws what was done otherwise; every rank calls it
  void record_module();
  void record_parameters();  // the engine leaves the parameters as they are now
  void take_in(Range& range, size_t parameter, bool is_replaced);
  void reclaim();
  bool is_replaced(const TrainedParameter& parameter) const;  // its memory
  std::vector<std::pair<std::string, at::Tensor>> new_parameters();
  void join_parameters(const std::vector<std::pair<std::string, at::Tensor>>& added);
  bool is_skipped(const Range& range, size_t parameter) const;  // frozen by the program, and without a gradient in this step
  std::vector<int64_t> lags_of(const Range& range) const;
  Ownership::Named owned() const;
  void say_once(const std::string& what);

  // ---- agreed.cpp, fingerprint.cpp
  void start_agreeing();
  control::Facts& agreed(bool is_boundary);
  void compare_fingerprints(const char* where);
  void compare_fingerprints(HostGroup& group, const std::vector<uint64_t>& hashes, const std::vector<std::string>& names,
                            const char* where);

  // ---- backward.cpp, scale.cpp: one backward, from the checks to its end
  struct Running {  // a backward of ours
    std::optional<control::Watch::Call> call;
    std::unique_ptr<zero::Interception> armed;  // where it runs on another thread than forward
  };
  std::unique_ptr<Running> running;  // from backward() or scale() to the end of that backward
  // On the thread that called scale(), to its next call of the engine: what LibTorch takes along into the program's own backward.
  struct Scope {
    std::unique_ptr<c10::DebugInfoGuard> marked;
    std::unique_ptr<zero::Interception> armed;
    std::thread::id thread = std::this_thread::get_id();
    ~Scope();
  };
  std::unique_ptr<Scope> scale_scope;
  void require_usable(const char* call) const;  // Error(kOrder): torn, or the module is another engine's
  void check_loss(const at::Tensor& loss, const char* call) const;
  struct BackwardPass {
    bool reduce = false;  // its gradients are averaged over the ranks as they arrive
    bool retain_graph = false;
    bool create_graph = false;  // `.grad` stays with the program too, with a graph
  };
  // Gradients of all trained parameters that `outputs` depend on, into the engine's buffers. `gradients`: of the outputs, scaled
  // as the loss is (seed); undefined for an output of one element: 1. An exception leaves restart_step() to the caller.
  void run_backward(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients, const BackwardPass& pass);
  void take_loss(const at::Tensor& loss, const BackwardOptions& options);
  bool reduces(const BackwardOptions& options) const;
  double seed(const BackwardOptions& options) const;
  void begin_backward(const BackwardPass& pass, bool is_marked);
  void end_backward();
  void give_up_backward();
  void drop_user_gradients();
  void restart_step() noexcept;  // after an error: no gradient is held, the next micro-batch is the first of its step
  void start_next_step();

  // ---- construction.cpp, engine.cpp: parameters that are gathered on demand
  void begin_forward();
  void end_forward();
  void disarm();  // operators are not looked at any more

  // ---- step.cpp: the phases of a boundary, in this order
  void check_step();
  StepResult end_micro_batch();
  void begin_boundary(StepScope& scope);
  void reduce();
  GradientCheck check();
  double clip(double norm) const;  // the factor that every gradient is multiplied by, unscaling included
  void begin_update(double norm);
  void update(double grad_scale);
  void publish();  // until every rank has the new parameters
  void end_update();
  StepResult skip();
  void end_step(bool applied);
  void update(Range& range, double grad_scale);
  HostUpdate& host_update(const Range& range);
  int64_t page_numel() const;
  std::vector<zero::Shard> in_parts(const zero::Shard& shard) const;
  void all_gather_persistent(Range& range);     // the small parameters that every rank has whole, where the others are shared out
  void send_shard(Range& range, size_t shard);  // starts to send a shard of the parameters that this rank updated to the others
  void finish_publishing();
  void publish_all();            // parameters from their masters, on every rank
  void refresh_masters();        // and the other way, of this rank's shards
  void* current_stream() const;  // the native handle, for plugins; null on a device without streams
  void forget_gradients();

  // ---- report.cpp
  void start_reporting();
  std::vector<double> rates() const;
  void report(const StepResult& result, const StepInputs& inputs);
  void report_times(bool is_boundary);
  std::string sentence_of(const SaveReceipt& receipt) const;  // "saved run1/global_step40, 1.2 GB in 0.8 s"

  // ---- save.cpp, load.cpp
  void add_state(ProgramState state);
  checkpoint::Ranks checkpoint_ranks() const;
  CheckpointWriter& writer();
  checkpoint::Content content(const SaveOptions& options, const checkpoint::Neighbours& neighbours) const;
  Dict document(const SaveOptions& options) const;

  // ---- user_optimizer.cpp
  void refuse_optimizers_with_closures() const;
  void adopt_user_optimizer();
  void return_user_optimizer() noexcept;  // its tensors are the module's again
  void update_with_user_optimizer(double grad_scale);
};

}  // namespace gannet
