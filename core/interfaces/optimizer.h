// An optimizer plugin's object for one parameter group, in C++.
//
//   Optimizer adam(plugin, params, host);
//   adam.describe({.tensors = ...});                      // from here on, the plugin's requirements are known
//   for (const auto& spec : adam.states()) ...            // the host allocates the states
//   adam.begin_step(step); adam.update(args); adam.end_step(step);   // on failure, these throw the plugin's message
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "interfaces/host.h"
#include "plugin/plugin.h"

namespace gannet {

class OptimizerWatch;
struct WatchContext;

class Optimizer {
 public:
  struct State {
    std::string name;
    gannet_dtype dtype;  // GANNET_DTYPE_NONE: the master's dtype if PER_ELEMENT, else fp32
    gannet_state_extent extent;
    double initial_value;
    uint32_t flags = 0;  // gannet_state_flag
    uint64_t block = 1;  // PER_BLOCK: elements that share one value
    uint64_t limit = 0;  // squares: the largest number of rows; factors: the width
    bool is_of_rank() const { return (flags & GANNET_STATE_OF_RANK) != 0; }
    bool is_served() const { return (flags & GANNET_STATE_SERVED) != 0; }
    bool is_local() const { return (flags & GANNET_STATE_LOCAL) != 0; }
    bool operator==(const State&) const = default;

    bool has(gannet_state_flag flag) const { return (flags & flag) != 0; }
    // Whether the state is sharded: cut into ranges like the parameters.
    bool is_cut() const { return extent == GANNET_STATE_PER_ELEMENT || extent == GANNET_STATE_PER_BLOCK; }
    // Whether the state consists of matrices over a tensor's rows or columns, which are on the rank
    // that has the whole tensor: squares, or low-rank factors.
    bool has_matrices() const { return extent >= GANNET_STATE_ROW_SQUARE && extent <= GANNET_STATE_COLUMN_FACTOR; }
    bool is_square() const { return extent == GANNET_STATE_ROW_SQUARE || extent == GANNET_STATE_COLUMN_SQUARE; }
    // Whether the state is replicated: every rank has all of it, for its parameter group.
    bool is_of_group() const { return !is_cut() && !has_matrices(); }
    // For a sharded state: the number of values that belong to `numel` elements.
    uint64_t values_of(uint64_t numel) const { return (numel + block - 1) / block; }
  };
  struct Sum {
    gannet_sum_scope scope;
    gannet_reduce_op op;
    uint32_t round;
    gannet_pass pass = GANNET_PASS_UPDATE;
    bool operator==(const Sum&) const = default;
    bool is_of_lines() const { return scope == GANNET_SUM_OF_ROW || scope == GANNET_SUM_OF_COLUMN; }
  };
  struct Tensor {  // becomes a gannet_tensor
    std::string name;
    uint64_t id;
    std::vector<int64_t> shape;
    uint64_t numel;
    std::string tie = {};  // the common name of copies on several pipeline stages, which draw the same random numbers
  };
  struct Context {
    uint32_t group = 0, group_count = 1, rank = 0, world_size = 1, device = 0;
    std::vector<Tensor> tensors;
  };

  Optimizer(const plugin::Plugin& plugin, plugin::ParamSet params, const Host& host);
  // Takes over an existing object of the plugin, for a table without `create`.
  Optimizer(const plugin::Plugin& plugin, plugin::ParamSet params, void* self);
  ~Optimizer();
  Optimizer(const Optimizer&) = delete;

  const plugin::Plugin& plugin() const { return plugin_; }
  // Must be called first, and again whenever parameters are added after the existing ones. Throws
  // Error(kPluginFault) if the plugin's description is invalid, or has changed since the last call.
  void describe(const Context& context);
  // The plugin's description as text with one item per line. It must be the same on every rank.
  std::string description() const;
  uint64_t capabilities() const { return capabilities_; }
  bool has(gannet_optimizer_capability capability) const { return (capabilities_ & capability) != 0; }
  bool needs_whole_tensors() const { return has(GANNET_OPTIMIZER_NEEDS_WHOLE_TENSOR) || !has(GANNET_OPTIMIZER_ELEMENTWISE); }
  const std::vector<State>& states() const { return states_; }
  const std::vector<Sum>& sums() const { return sums_; }
  uint64_t range_alignment() const { return range_alignment_; }
  size_t tensor_count() const { return tensors_.size(); }
  // The shape of a state for the tensor with this index: `count` stacked matrices of rows x
  // columns. All three are 0 if the state has no matrices.
  struct Matrices {
    uint64_t count = 0, rows = 0, columns = 0;
    uint64_t numel() const { return count * rows * columns; }
  };
  Matrices matrices_of(const State& state, uint64_t tensor) const;
  bool has_matrix_states() const { return has_matrix_states_; }
  bool uses_seed() const { return (capabilities_ & GANNET_OPTIMIZER_USES_SEED) != 0; }
  // The size of the workspace for a piece of `numel` elements; 0 gives the size for begin_step and
  // end_step.
  uint64_t workspace_bytes(uint64_t numel) const { return workspace_bytes_ + numel * workspace_bytes_per_element_; }
  // group_numel: the number of values of a replicated state. line_count: the number of values of a
  // sum over rows or columns. Both are for all tensors described so far.
  uint64_t group_numel(const State& state) const;
  uint64_t line_count(const Sum& sum) const { return sum.scope == GANNET_SUM_OF_ROW ? rows_ : columns_; }
  // Whether the optimizer has states or sums by rows, columns, blocks or matrices of a tensor,
  // which a rank with only a part of the tensor (tensor parallelism) cannot compute.
  bool needs_lines() const;
  // The dynamic params: their names ("lr", "betas[0]" ...), their values in the config, and their
  // roles.
  const std::vector<std::string>& hyper_names() const { return params_.dynamic_names(); }
  const std::vector<double>& hyper_values() const { return params_.dynamic_values(); }
  const std::vector<uint32_t>& hyper_roles() const { return params_.dynamic_roles(); }
  bool owns_grad_reduction() const { return has(GANNET_OPTIMIZER_OWNS_GRAD_REDUCTION); }
  // Who averages the gradients of this step (gannet_step_args::step). Without
  // owns_grad_reduction(), it is always the host.
  gannet_gradient_reduction reduction(uint64_t step) const;
  // True if that is not the host: every rank's update() then gets its own, unreduced gradient.
  bool reduces_gradients(uint64_t step) const { return reduction(step) != GANNET_REDUCED_BY_HOST; }
  // Throws Error(kUnsupported) with the plugin's name and the three dtypes if the plugin does not
  // support them.
  void require_support(gannet_dtype param, gannet_dtype grad, gannet_dtype out) const;

  // After this, every call works on copies of its arrays that are surrounded by canaries
  // (optimizer_watch.h). Works only for arrays in host memory.
  void watch();

  void begin_step(gannet_step_args args);  // fills in the tensors of `args`
  void end_step(gannet_step_args args);
  void sums(const gannet_update_args& args, uint32_t round, double* sums);
  void update(const gannet_update_args& args);
  // sums_many and update_many do the same for several pieces in one call, if takes_lists(). `sums`:
  // [pieces].
  bool takes_lists() const { return has(GANNET_OPTIMIZER_TAKES_LISTS); }
  void sums_many(const std::vector<gannet_update_args>& pieces, uint32_t round, double* const* sums);
  void update_many(const std::vector<gannet_update_args>& pieces);
  // Whether the optimizer reads the step's numbers from the memory that holds the arrays
  // (device_numbers.h).
  bool takes_device_numbers() const { return has(GANNET_OPTIMIZER_TAKES_DEVICE_NUMBERS); }
  // Whether evaluation uses weights other than the trained ones; evaluate() computes them.
  bool has_evaluation_weights() const { return api_->evaluate != nullptr; }
  void evaluate(const gannet_update_args& args);
  // Whether a step may need the gradient at perturbed parameters, which perturb() writes to `out`.
  bool perturbs() const { return has(GANNET_OPTIMIZER_PERTURBS); }
  void perturb(const gannet_update_args& args);
  // takes_second_gradients: whether some steps use a second gradient. wants_second_gradient:
  // whether the given step does (gannet_step_args::step).
  bool takes_second_gradients() const { return has(GANNET_OPTIMIZER_SECOND_GRADIENT); }
  bool wants_second_gradient(uint64_t step) const;

 private:
  void step(const char* name, int32_t (*function)(void*, const gannet_step_args*, gannet_error*), gannet_step_args& args);
  void check_squares();
  WatchContext watched() const;

  const plugin::Plugin& plugin_;
  plugin::ParamSet params_;
  const gannet_optimizer_api* api_;
  void* self_ = nullptr;
  std::deque<Tensor> tensors_;               // a deque, since the plugin keeps the addresses of its elements
  std::vector<gannet_tensor> tensor_views_;  // one for each of tensors_
  uint64_t rows_ = 0, columns_ = 0;          // total numbers over all tensors
  uint32_t world_size_ = 1;
  // The following members are copied from the plugin's description once it is validated.
  uint64_t capabilities_ = 0, range_alignment_ = 0, workspace_bytes_ = 0, workspace_bytes_per_element_ = 0;
  bool has_matrix_states_ = false;
  std::vector<State> states_;
  std::vector<Sum> sums_;
  bool is_described_ = false;
  std::unique_ptr<OptimizerWatch> watch_;  // null: not watched
};

}  // namespace gannet
