#include "interfaces/optimizer.h"

#include <gannet/error.h>

#include <algorithm>

#include "base/format.h"
#include "base/text.h"
#include "interfaces/call.h"
#include "interfaces/optimizer_watch.h"
#include "interfaces/seeds.h"
#include "interfaces/tensor_lines.h"

namespace gannet {
namespace {

// Far more than an optimizer has: beyond them the list is damaged.
constexpr uint64_t kMost = 64, kLargestStride = 4096;
constexpr uint64_t kLargestSquare = 16384, kMostInSquares = uint64_t{1} << 31;

const char* dtype_name(gannet_dtype dtype) {
  switch (dtype) {
    case GANNET_DTYPE_NONE:
      return "none";
    case GANNET_FLOAT32:
      return "fp32";
    case GANNET_FLOAT64:
      return "fp64";
    case GANNET_FLOAT16:
      return "fp16";
    case GANNET_BFLOAT16:
      return "bf16";
    case GANNET_INT8:
      return "int8";
    case GANNET_UINT8:
      return "uint8";
    case GANNET_INT16:
      return "int16";
    case GANNET_INT32:
      return "int32";
    case GANNET_INT64:
      return "int64";
    case GANNET_BOOL:
      return "bool";
  }
  return "unknown";
}

// The elements of a plugin's array of structs, each at least `least` bytes long.
template <class T>
std::vector<const T*> elements(const T* first, uint64_t count, uint64_t stride, size_t least, const char* what) {
  if (count > kMost) throw Error(ErrorCode::kPlugin, formatted("it declares {} {}, at most {} are possible", count, what, kMost));
  if (count > 0 && (!first || stride < least || stride > kLargestStride || stride % alignof(T)))
    throw Error(ErrorCode::kPlugin, formatted("its list of {} is malformed", what));
  std::vector<const T*> all;
  for (uint64_t i = 0; i < count; ++i)
    all.push_back(reinterpret_cast<const T*>(reinterpret_cast<const char*>(first) + i * stride));
  for (const T* one : all)
    if (one->struct_size < least) throw Error(ErrorCode::kPlugin, formatted("one of its {} has too small a struct_size", what));
  return all;
}

[[noreturn]] void bad(const std::string& reason) { throw Error(ErrorCode::kPlugin, reason); }

constexpr uint32_t kFlagsOfRanks = GANNET_STATE_OF_RANK | GANNET_STATE_SERVED | GANNET_STATE_LOCAL;
constexpr uint32_t kKnownStateFlags = GANNET_STATE_FROM_PARAMETER | kFlagsOfRanks;

// What is wrong with a state that is a square, or with the limit of one that is none; "": nothing.
std::string flaw_of_square(const gannet_state_spec& spec, const gannet_optimizer_description& found) {
  const uint64_t limit = GANNET_HAS(&spec, gannet_state_spec, limit) ? spec.limit : 0;
  if (spec.extent != GANNET_STATE_ROW_SQUARE && spec.extent != GANNET_STATE_COLUMN_SQUARE)
    return limit == 0 ? "" : "has a limit, and is no square";
  if (!(found.capabilities & GANNET_OPTIMIZER_NEEDS_WHOLE_TENSOR))
    return "is a square, which takes the capability NEEDS_WHOLE_TENSOR";
  if (found.capabilities & GANNET_OPTIMIZER_OWNS_GRAD_REDUCTION)
    return "is a square, which an optimizer that averages gradients itself cannot have";
  if (limit == 0 || limit > kLargestSquare)
    return formatted("is a square with a limit of {} rows, which must be from 1 to {}", limit, kLargestSquare);
  return "";
}

// What is wrong with a state's flags and block; "": nothing.
std::string flaw_of(const gannet_state_spec& spec, const gannet_optimizer_description& found) {
  const uint64_t alignment = std::max<uint64_t>(found.range_alignment, 1);
  if (spec.flags & ~kKnownStateFlags)
    return formatted("has flags that this Gannet does not know (bits {:#x})", spec.flags & ~kKnownStateFlags);
  if (spec.flags != 0 && spec.extent != GANNET_STATE_PER_ELEMENT) return "has flags that are of states PER_ELEMENT alone";
  if (spec.flags & (spec.flags - 1)) return "has several flags, which exclude one another";
  if ((spec.flags & kFlagsOfRanks) && !(found.capabilities & GANNET_OPTIMIZER_OWNS_GRAD_REDUCTION))
    return "is each rank's own, which takes the capability OWNS_GRAD_REDUCTION";
  if (const std::string flaw = flaw_of_square(spec, found); !flaw.empty()) return flaw;
  if (spec.extent != GANNET_STATE_PER_BLOCK) return spec.block == 0 ? "" : "has a block, and is not PER_BLOCK";
  if (spec.block == 0 || (spec.block & (spec.block - 1)) != 0 || alignment % spec.block != 0)
    return formatted("has blocks of {} elements, which must be a power of two that divides range_alignment, {}", spec.block,
                     alignment);
  return "";
}

std::vector<Optimizer::State> read_states(const gannet_optimizer_description& found) {
  std::vector<Optimizer::State> states;
  for (const gannet_state_spec* each :
       elements(found.states, found.state_count, found.state_stride, GANNET_STATE_SPEC_SIZE_2_0, "states")) {
    const gannet_state_spec& spec = *each;
    if (!spec.name || !*spec.name) bad(formatted("its state number {} has no name", states.size()));
    if (printable(spec.name) != spec.name)
      bad(formatted("its state '{}' has a control character in its name", printable(spec.name)));
    if (spec.dtype > GANNET_BOOL) bad(formatted("its state '{}' has an unknown dtype, {}", spec.name, spec.dtype));
    if (spec.extent < GANNET_STATE_PER_ELEMENT || spec.extent > GANNET_STATE_COLUMN_SQUARE)
      bad(formatted("its state '{}' has an unknown extent, {}", spec.name, spec.extent));
    if (const std::string flaw = flaw_of(spec, found); !flaw.empty()) bad(formatted("its state '{}' {}", spec.name, flaw));
    for (const auto& other : states)
      if (other.name == spec.name) bad(formatted("it declares the state '{}' twice", other.name));
    states.push_back({spec.name, static_cast<gannet_dtype>(spec.dtype), static_cast<gannet_state_extent>(spec.extent),
                      spec.initial_value, spec.flags, std::max<uint64_t>(spec.block, 1),
                      GANNET_HAS(&spec, gannet_state_spec, limit) ? spec.limit : 0});
  }
  return states;
}

std::vector<Optimizer::Sum> read_sums(const gannet_optimizer_description& found) {
  std::vector<Optimizer::Sum> sums;
  for (const gannet_sum_spec* spec : elements(found.sums, found.sum_count, found.sum_stride, GANNET_SUM_SPEC_SIZE_2_0, "sums")) {
    if (spec->scope < GANNET_SUM_OF_TENSOR || spec->scope > GANNET_SUM_OF_COLUMN)
      bad(formatted("one of its sums has an unknown scope, {}", spec->scope));
    if (spec->reduce_op < GANNET_SUM || spec->reduce_op > GANNET_MIN)
      bad(formatted("one of its sums has an unknown operation, {}", spec->reduce_op));
    if (spec->round > (sums.empty() ? 0 : sums.back().round + 1) || (!sums.empty() && spec->round < sums.back().round))
      bad("its sums are not in the order of their rounds, counted from 0");
    sums.push_back({static_cast<gannet_sum_scope>(spec->scope), static_cast<gannet_reduce_op>(spec->reduce_op), spec->round});
  }
  return sums;
}

constexpr uint64_t kKnownCapabilities = GANNET_OPTIMIZER_ELEMENTWISE | GANNET_OPTIMIZER_NEEDS_WHOLE_TENSOR |
                                        GANNET_OPTIMIZER_OWNS_GRAD_REDUCTION | GANNET_OPTIMIZER_USES_SEED |
                                        GANNET_OPTIMIZER_USES_WORKSPACE;
constexpr uint64_t kLargestAlignment = 4096;
constexpr uint64_t kLargestWorkspace = uint64_t{1} << 40, kLargestWorkspacePerElement = 4096;

void check(const gannet_optimizer_description& found) {
  if (found.capabilities & ~kKnownCapabilities)
    bad(formatted("it has capabilities that this Gannet does not know (bits {:#x})", found.capabilities & ~kKnownCapabilities));
  if ((found.capabilities & GANNET_OPTIMIZER_ELEMENTWISE) && (found.capabilities & GANNET_OPTIMIZER_NEEDS_WHOLE_TENSOR))
    bad("it is element-wise and needs whole tensors, which is a contradiction");
  if (found.range_alignment > kLargestAlignment || (found.range_alignment & (found.range_alignment - 1)) != 0)
    bad(formatted("it wants ranges at multiples of {} elements, which is no power of two of at most {}", found.range_alignment,
                  kLargestAlignment));
  const bool is_asked = found.workspace_bytes > 0 || found.workspace_bytes_per_element > 0;
  if (is_asked != ((found.capabilities & GANNET_OPTIMIZER_USES_WORKSPACE) != 0))
    bad(is_asked ? "it asks for a workspace, which takes the capability USES_WORKSPACE"
                 : "it claims USES_WORKSPACE, and asks for a workspace of no bytes");
  if (found.workspace_bytes > kLargestWorkspace || found.workspace_bytes_per_element > kLargestWorkspacePerElement)
    bad(formatted("it asks for a workspace of {} bytes and {} for each element, at most {} and {} are possible",
                  found.workspace_bytes, found.workspace_bytes_per_element, kLargestWorkspace, kLargestWorkspacePerElement));
}

}  // namespace

Optimizer::Optimizer(const plugin::Plugin& plugin, plugin::ParamSet params, const Host& host)
    : plugin_(plugin), params_(std::move(params)), api_(interfaces::api_of<gannet_optimizer_api>(plugin)) {
  interfaces::call(plugin_, api_->create, host.table(), &params_.view(), &self_);
}

Optimizer::Optimizer(const plugin::Plugin& plugin, plugin::ParamSet params, void* self)
    : plugin_(plugin), params_(std::move(params)), api_(interfaces::api_of<gannet_optimizer_api>(plugin)), self_(self) {}

Optimizer::~Optimizer() { api_->destroy(self_); }

void Optimizer::describe(const Context& context) {
  for (size_t t = tensors_.size(); t < context.tensors.size(); ++t) tensors_.push_back(context.tensors[t]);
  tensor_views_.clear();
  TensorLines lines;
  for (const Tensor& tensor : tensors_) {
    gannet_tensor view{};
    view.struct_size = sizeof(view);
    view.dimensions = static_cast<uint32_t>(tensor.shape.size());
    view.index = tensor_views_.size();
    view.id = tensor.id;
    view.name = tensor.name.c_str();
    view.numel = tensor.numel;
    view.shape = tensor.shape.data();
    view.seed = tensor_seed(tensor.name);
    lines = TensorLines::of(tensor.shape, tensor.numel, lines);
    lines.write_to(view);
    tensor_views_.push_back(view);
  }
  rows_ = lines.first_row + lines.row_count;
  columns_ = lines.first_column + lines.column_count;
  gannet_optimizer_context given{};
  given.struct_size = sizeof(given);
  given.group = context.group;
  given.group_count = context.group_count;
  given.rank = context.rank;
  given.world_size = world_size_ = context.world_size;
  given.device = context.device;
  given.tensors = tensor_views_.data();
  given.tensor_count = tensor_views_.size();
  given.tensor_stride = sizeof(gannet_tensor);
  gannet_optimizer_description found{};
  found.struct_size = sizeof(found);
  interfaces::call(plugin_, api_->describe, self_, &given, &found);
  try {
    check(found);
    std::vector<State> states = read_states(found);
    std::vector<Sum> sums = read_sums(found);
    if (!sums.empty() && !api_->sums) bad("it wants sums, and its function sums is null");
    if ((found.capabilities & GANNET_OPTIMIZER_OWNS_GRAD_REDUCTION) && !api_->reduces_gradients)
      bad("it claims OWNS_GRAD_REDUCTION, and its function reduces_gradients is null");
    if (is_described_ &&
        (states != states_ || sums != sums_ || found.capabilities != capabilities_ ||
         std::max<uint64_t>(found.range_alignment, 1) != range_alignment_ || found.workspace_bytes != workspace_bytes_ ||
         found.workspace_bytes_per_element != workspace_bytes_per_element_))
      bad("it describes itself differently now that parameters have joined");
    states_ = std::move(states);
    sums_ = std::move(sums);
    check_squares();
  } catch (const Error& error) {
    throw plugin::fault(plugin_, formatted("{}: {}", interfaces::who(plugin_), error.message()));
  }
  capabilities_ = found.capabilities;
  range_alignment_ = std::max<uint64_t>(found.range_alignment, 1);
  workspace_bytes_ = found.workspace_bytes;
  workspace_bytes_per_element_ = found.workspace_bytes_per_element;
  is_described_ = true;
}

// A stack of many matrices may have more squares than anyone has memory for.
void Optimizer::check_squares() {
  has_squares_ = false;
  for (const State& state : states_) {
    has_squares_ = has_squares_ || state.is_square();
    for (uint64_t t = 0; t < tensors_.size(); ++t)
      if (square_numel(state, t) > kMostInSquares)
        bad(formatted(
            "its state '{}' would have {} values for the tensor '{}', at most {} are possible: give it a limit below {}",
            state.name, square_numel(state, t), tensors_[t].name, kMostInSquares, state.limit));
  }
}

void Optimizer::require_support(gannet_dtype param, gannet_dtype grad, gannet_dtype out) const {
  plugin::ErrorBuffer error;
  const int32_t status =
      interfaces::walled(plugin_, api_->supports, self_, static_cast<uint32_t>(param), static_cast<uint32_t>(grad),
                         static_cast<uint32_t>(out), static_cast<gannet_error*>(error));
  if (status == GANNET_OK) return;
  plugin::raise_unless_ok(
      status, error, plugin_,
      formatted("{} does not take a {} parameter with a {} gradient and {}", interfaces::who(plugin_), dtype_name(param),
                dtype_name(grad), out == GANNET_DTYPE_NONE ? "no copy" : formatted("a {} copy", dtype_name(out))));
}

gannet_gradient_reduction Optimizer::reduction(uint64_t step) const {
  if (!owns_grad_reduction()) return GANNET_REDUCED_BY_HOST;
  uint32_t reduction = 0;
  interfaces::call(plugin_, api_->reduces_gradients, self_, step, &reduction);
  const auto refuse = [&](const std::string& why) {
    throw plugin::fault(plugin_, formatted("{}: its function reduces_gradients answers {} for step {}, {}",
                                           interfaces::who(plugin_), reduction, step, why));
  };
  if (reduction > GANNET_REDUCED_LATER) refuse("which this Gannet does not know");
  if (reduction == GANNET_REDUCED_LATER && !api_->evaluate)
    refuse("a local step, and its function evaluate is null: nobody knows the weights to use after it");
  return static_cast<gannet_gradient_reduction>(reduction);
}

void Optimizer::watch() { watch_ = std::make_unique<OptimizerWatch>(plugin_); }

WatchContext Optimizer::watched() const { return {*this, tensor_views_, world_size_}; }

void Optimizer::step(const char* name, int32_t (*function)(void*, const gannet_step_args*, gannet_error*),
                     gannet_step_args& args) {
  if (!function) return;
  args.struct_size = sizeof(args);
  args.tensors = tensor_views_.data();
  args.tensor_count = tensor_views_.size();
  args.tensor_stride = sizeof(gannet_tensor);
  const auto call = [&](const gannet_step_args& given) { interfaces::call(plugin_, function, self_, &given); };
  if (watch_) return watch_->step(name, args, watched(), call);
  call(args);
}

uint64_t Optimizer::square_rows(const State& state, uint64_t tensor) const {
  const gannet_tensor& view = tensor_views_[tensor];
  if (!state.is_square() || view.dimensions < 2 || view.numel == 0) return 0;
  const uint64_t rows = state.extent == GANNET_STATE_ROW_SQUARE ? view.matrix_rows : view.columns;
  return rows <= state.limit ? rows : 0;
}

uint64_t Optimizer::matrix_count(uint64_t tensor) const {
  const gannet_tensor& view = tensor_views_[tensor];
  return view.numel / (view.columns * view.matrix_rows);
}

uint64_t Optimizer::group_numel(const State& state) const {
  switch (state.extent) {
    case GANNET_STATE_PER_TENSOR:
      return tensors_.size();
    case GANNET_STATE_PER_ROW:
      return rows_;
    case GANNET_STATE_PER_COLUMN:
      return columns_;
    default:
      return 1;
  }
}

bool Optimizer::needs_lines() const {
  return std::any_of(sums_.begin(), sums_.end(), [](const Sum& sum) { return sum.is_of_lines(); }) ||
         std::any_of(states_.begin(), states_.end(), [](const State& state) {
           return state.is_square() || state.extent == GANNET_STATE_PER_ROW || state.extent == GANNET_STATE_PER_COLUMN ||
                  state.extent == GANNET_STATE_PER_BLOCK;
         });
}

void Optimizer::begin_step(gannet_step_args args) { step("begin_step", api_->begin_step, args); }

void Optimizer::end_step(gannet_step_args args) { step("end_step", api_->end_step, args); }

void Optimizer::sums(const gannet_update_args& args, uint32_t round, double* sums) {
  const auto call = [&](const gannet_update_args& given, double* into) {
    interfaces::call(plugin_, api_->sums, self_, &given, round, into);
  };
  if (watch_) return watch_->sums(args, watched(), sums, call);
  call(args, sums);
}

void Optimizer::update(const gannet_update_args& args) {
  const auto call = [&](const gannet_update_args& given) { interfaces::call(plugin_, api_->update, self_, &given); };
  if (watch_) return watch_->update(args, watched(), call);
  call(args);
}

void Optimizer::evaluate(const gannet_update_args& args) {
  const auto call = [&](const gannet_update_args& given) { interfaces::call(plugin_, api_->evaluate, self_, &given); };
  if (watch_) return watch_->evaluate(args, watched(), call);
  call(args);
}

}  // namespace gannet
