#include "interfaces/optimizer.h"

#include <gannet/error.h>

#include <algorithm>

#include "base/format.h"
#include "base/text.h"
#include "interfaces/call.h"
#include "interfaces/optimizer_description.h"
#include "interfaces/optimizer_watch.h"
#include "interfaces/seeds.h"
#include "interfaces/tensor_lines.h"

namespace gannet {
namespace {

constexpr uint64_t kMostInSquares = uint64_t{1} << 31;

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

// A piece may contain several tensors; its first tensor is named.
interfaces::CallPlace place_of(const char* call, const gannet_update_args& args) {
  return {call, args.step, args.segment_count > 0 ? args.segments[0].name : nullptr};
}

}  // namespace

Optimizer::Optimizer(const plugin::Plugin& plugin, plugin::ParamSet params, const Host& host)
    : plugin_(plugin), params_(std::move(params)), api_(interfaces::api_of<gannet_optimizer_api>(plugin)) {
  interfaces::call(plugin_, {"create"}, api_->create, host.table(), &params_.view(), &self_);
}

Optimizer::Optimizer(const plugin::Plugin& plugin, plugin::ParamSet params, void* self)
    : plugin_(plugin), params_(std::move(params)), api_(interfaces::api_of<gannet_optimizer_api>(plugin)), self_(self) {}

Optimizer::~Optimizer() { interfaces::marked(plugin_, {"destroy"}, api_->destroy, self_); }

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
    view.seed = tensor_seed(tensor.tie.empty() ? tensor.name : tensor.tie);
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
  interfaces::call(plugin_, {"describe"}, api_->describe, self_, &given, &found);
  try {
    description::check(found, *api_);
    std::vector<State> states = description::read_states(found);
    std::vector<Sum> sums = description::read_sums(found);
    if (!sums.empty() && !api_->sums) description::bad("it wants sums, and its function sums is null");
    if ((found.capabilities & GANNET_OPTIMIZER_OWNS_GRAD_REDUCTION) && !api_->reduces_gradients)
      description::bad("it claims OWNS_GRAD_REDUCTION, and its function reduces_gradients is null");
    if (is_described_ &&
        (states != states_ || sums != sums_ || found.capabilities != capabilities_ ||
         std::max<uint64_t>(found.range_alignment, 1) != range_alignment_ || found.workspace_bytes != workspace_bytes_ ||
         found.workspace_bytes_per_element != workspace_bytes_per_element_))
      description::bad("it describes itself differently now that parameters have joined");
    states_ = std::move(states);
    sums_ = std::move(sums);
    check_squares();
  } catch (const Error& error) {
    throw plugin::fault(plugin_, formatted("{}: {}", interfaces::who(plugin_, {"describe"}), error.message()));
  }
  capabilities_ = found.capabilities;
  range_alignment_ = std::max<uint64_t>(found.range_alignment, 1);
  workspace_bytes_ = found.workspace_bytes;
  workspace_bytes_per_element_ = found.workspace_bytes_per_element;
  is_described_ = true;
}

std::string Optimizer::description() const {
  std::string text = formatted("capabilities {:#x}\nrange alignment {}\n", capabilities_, range_alignment_);
  for (const State& state : states_)
    text += formatted("state '{}': {}, extent {}, begins at {}, flags {:#x}, block {}, limit {}\n", state.name,
                      dtype_name(state.dtype), static_cast<int>(state.extent), state.initial_value, state.flags, state.block,
                      state.limit);
  for (const Sum& sum : sums_)
    text += formatted("sum of scope {}, operation {}, round {}, pass {}\n", static_cast<int>(sum.scope), static_cast<int>(sum.op),
                      sum.round, static_cast<int>(sum.pass));
  return text;
}

// Limits the size of squares and factors: for a stack of many matrices they could exceed any memory.
void Optimizer::check_squares() {
  has_matrix_states_ = false;
  for (const State& state : states_) {
    has_matrix_states_ = has_matrix_states_ || state.has_matrices();
    for (uint64_t t = 0; t < tensors_.size(); ++t)
      if (const uint64_t numel = matrices_of(state, t).numel(); numel > kMostInSquares)
        description::bad(formatted(
            "its state '{}' would have {} values for the tensor '{}', at most {} are possible: give it a limit below {}",
            state.name, numel, tensors_[t].name, kMostInSquares, state.limit));
  }
}

void Optimizer::require_support(gannet_dtype param, gannet_dtype grad, gannet_dtype out) const {
  plugin::ErrorBuffer error;
  const int32_t status =
      interfaces::walled(plugin_, {"supports"}, api_->supports, self_, static_cast<uint32_t>(param), static_cast<uint32_t>(grad),
                         static_cast<uint32_t>(out), static_cast<gannet_error*>(error));
  if (status == GANNET_OK) return;
  plugin::raise_unless_ok(
      status, error, plugin_,
      formatted("{} does not take a {} parameter with a {} gradient and {}", interfaces::who(plugin_), dtype_name(param),
                dtype_name(grad),
                out != GANNET_DTYPE_NONE ? formatted("a {} copy", dtype_name(out))
                : param == GANNET_BFLOAT16
                    ? std::string("no fp32 master, as \"bf16_master_weights_and_grads\" asks (AdamWBF16 takes it)")
                    : std::string("no copy")));
}

gannet_gradient_reduction Optimizer::reduction(uint64_t step) const {
  if (!owns_grad_reduction()) return GANNET_REDUCED_BY_HOST;
  uint32_t reduction = 0;
  interfaces::call(plugin_, {"reduces_gradients", step}, api_->reduces_gradients, self_, step, &reduction);
  const auto refuse = [&](const std::string& why) {
    throw plugin::fault(plugin_, formatted("{}: its function reduces_gradients answers {} for step {}, {}",
                                           interfaces::who(plugin_), reduction, step, why));
  };
  if (reduction > GANNET_REDUCED_LATER) refuse("which this Gannet does not know");
  if (reduction == GANNET_REDUCED_LATER && !api_->evaluate)
    refuse("a local step, and its function evaluate is null: the weights to use after it are unknown");
  return static_cast<gannet_gradient_reduction>(reduction);
}

bool Optimizer::wants_second_gradient(uint64_t step) const {
  if (!takes_second_gradients()) return false;
  uint32_t wants = 0;
  interfaces::call(plugin_, {"wants_second_gradient", step}, api_->wants_second_gradient, self_, step, &wants);
  if (wants > 1)
    throw plugin::fault(plugin_, formatted("{}: its function wants_second_gradient answers {} for step {}, which is neither 0 "
                                           "nor 1",
                                           interfaces::who(plugin_), wants, step));
  return wants == 1;
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
  const auto call = [&](const gannet_step_args& given) { interfaces::call(plugin_, {name, args.step}, function, self_, &given); };
  if (watch_) return watch_->step(name, args, watched(), call);
  call(args);
}

Optimizer::Matrices Optimizer::matrices_of(const State& state, uint64_t tensor) const {
  const gannet_tensor& view = tensor_views_[tensor];
  if (!state.has_matrices() || view.dimensions < 2 || view.numel == 0) return {};
  const uint64_t count = view.numel / (view.columns * view.matrix_rows);
  const bool of_rows = state.extent == GANNET_STATE_ROW_SQUARE || state.extent == GANNET_STATE_ROW_FACTOR;
  const uint64_t rows = of_rows ? view.matrix_rows : view.columns;
  if (!state.is_square()) return {count, rows, std::min({state.limit, view.matrix_rows, view.columns})};
  if (rows > state.limit) return {};
  return {count, rows, rows};
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
           return state.has_matrices() || state.extent == GANNET_STATE_PER_ROW || state.extent == GANNET_STATE_PER_COLUMN ||
                  state.extent == GANNET_STATE_PER_BLOCK;
         });
}

void Optimizer::begin_step(gannet_step_args args) { step("begin_step", api_->begin_step, args); }

void Optimizer::end_step(gannet_step_args args) { step("end_step", api_->end_step, args); }

void Optimizer::sums(const gannet_update_args& args, uint32_t round, double* sums) {
  const auto call = [&](const gannet_update_args& given, double* into) {
    interfaces::call(plugin_, place_of("sums", given), api_->sums, self_, &given, round, into);
  };
  if (watch_) return watch_->sums(args, watched(), sums, call);
  call(args, sums);
}

void Optimizer::update(const gannet_update_args& args) {
  const auto call = [&](const gannet_update_args& given) {
    interfaces::call(plugin_, place_of("update", given), api_->update, self_, &given);
  };
  if (watch_) return watch_->update(args, watched(), call);
  call(args);
}

void Optimizer::sums_many(const std::vector<gannet_update_args>& pieces, uint32_t round, double* const* sums) {
  const auto call = [&](const std::vector<gannet_update_args>& given, double* const* into) {
    interfaces::call(plugin_, place_of("sums_many", given[0]), api_->sums_many, self_, given.data(), uint64_t{given.size()},
                     uint64_t{sizeof(gannet_update_args)}, round, into);
  };
  if (watch_) return watch_->sums_many(pieces, watched(), sums, call);
  call(pieces, sums);
}

void Optimizer::update_many(const std::vector<gannet_update_args>& pieces) {
  const auto call = [&](const std::vector<gannet_update_args>& given) {
    interfaces::call(plugin_, place_of("update_many", given[0]), api_->update_many, self_, given.data(), uint64_t{given.size()},
                     uint64_t{sizeof(gannet_update_args)});
  };
  if (watch_) return watch_->update_many(pieces, watched(), call);
  call(pieces);
}

void Optimizer::evaluate(const gannet_update_args& args) {
  const auto call = [&](const gannet_update_args& given) {
    interfaces::call(plugin_, place_of("evaluate", given), api_->evaluate, self_, &given);
  };
  if (watch_) return watch_->evaluate(args, watched(), call);
  call(args);
}

void Optimizer::perturb(const gannet_update_args& args) {
  const auto call = [&](const gannet_update_args& given) {
    interfaces::call(plugin_, place_of("perturb", given), api_->perturb, self_, &given);
  };
  if (watch_) return watch_->perturb(args, watched(), call);
  call(args);
}

}  // namespace gannet
