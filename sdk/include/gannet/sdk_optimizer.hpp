/// The base of an optimizer in C++, and its table of functions. Part of gannet/sdk.hpp.
#pragma once

#include <gannet/abi.h>

#include <cstring>
#include <gannet/sdk_host.hpp>
#include <gannet/sdk_params.hpp>
#include <limits>
#include <type_traits>
#include <vector>

namespace gannet::sdk {

/// A state of the optimizer: `state("exp_avg")` has one value per element, in the master's dtype,
/// initially zero.
constexpr gannet_state_spec state(const char* name, gannet_state_extent extent = GANNET_STATE_PER_ELEMENT,
                                  gannet_dtype dtype = GANNET_DTYPE_NONE, double initial_value = 0) {
  gannet_state_spec spec{};
  spec.struct_size = sizeof(gannet_state_spec);
  spec.dtype = dtype;
  spec.extent = extent;
  spec.name = name;
  spec.initial_value = initial_value;
  return spec;
}

/// A state that is initialised with the parameter's values: `state_from_parameter("z")`.
constexpr gannet_state_spec state_from_parameter(const char* name, gannet_dtype dtype = GANNET_DTYPE_NONE) {
  gannet_state_spec spec = state(name, GANNET_STATE_PER_ELEMENT, dtype);
  spec.flags = GANNET_STATE_FROM_PARAMETER;
  return spec;
}

/// A state with one value per `block` elements: `state_per_block("exp_avg_scale", 256)`.
/// range_alignment() must then be a multiple of `block`.
constexpr gannet_state_spec state_per_block(const char* name, uint64_t block, gannet_dtype dtype = GANNET_FLOAT32,
                                            double initial_value = 0) {
  gannet_state_spec spec = state(name, GANNET_STATE_PER_BLOCK, dtype, initial_value);
  spec.block = block;
  return spec;
}

#if GANNET_TARGET_MINOR >= 1
/// A state of square matrices over a tensor's rows (GANNET_STATE_ROW_SQUARE) or columns
/// (GANNET_STATE_COLUMN_SQUARE), for optimizers with NEEDS_WHOLE_TENSOR: `square_state("left",
/// GANNET_STATE_ROW_SQUARE, 2048, 1e-6)` starts with 1e-6 on its diagonals, and has no matrix with
/// more than 2048 rows.
constexpr gannet_state_spec square_state(const char* name, gannet_state_extent extent, uint64_t limit, double diagonal = 0,
                                         gannet_dtype dtype = GANNET_FLOAT32) {
  gannet_state_spec spec = state(name, extent, dtype, diagonal);
  spec.limit = limit;
  return spec;
}
#endif

#if GANNET_TARGET_MINOR >= 4
/// A state of low-rank factors of a tensor's matrices, for optimizers with NEEDS_WHOLE_TENSOR:
/// `factor_state("projection", GANNET_STATE_ROW_FACTOR, 128)` has [matrices][matrix_rows][width]
/// numbers, where width is 128, or the smaller of matrix_rows and columns if that is less.
constexpr gannet_state_spec factor_state(const char* name, gannet_state_extent extent, uint64_t width, double initial_value = 0,
                                         gannet_dtype dtype = GANNET_FLOAT32) {
  gannet_state_spec spec = state(name, extent, dtype, initial_value);
  spec.limit = width;
  return spec;
}
#endif

/// A number reduced over a whole tensor, over the parameter group or over the model:
/// `sum(GANNET_SUM_OF_TENSOR)`.
constexpr gannet_sum_spec sum(gannet_sum_scope scope, gannet_reduce_op reduce_op = GANNET_SUM, uint32_t round = 0) {
  gannet_sum_spec spec{};
  spec.struct_size = sizeof(gannet_sum_spec);
  spec.scope = scope;
  spec.reduce_op = reduce_op;
  spec.round = round;
  return spec;
}

#if GANNET_TARGET_MINOR >= 2
/// A reduced number that perturb() needs: `sum_to_perturb(GANNET_SUM_OF_MODEL)`.
constexpr gannet_sum_spec sum_to_perturb(gannet_sum_scope scope, gannet_reduce_op reduce_op = GANNET_SUM, uint32_t round = 0) {
  gannet_sum_spec spec = sum(scope, reduce_op, round);
  spec.pass = GANNET_PASS_PERTURB;
  return spec;
}
#endif

/// The i-th element of an array of structs that are `stride` bytes apart.
template <class T>
const T& element(const T* first, uint64_t stride, uint64_t i) {
  return *reinterpret_cast<const T*>(reinterpret_cast<const char*>(first) + i * stride);
}
inline const gannet_segment& segment(const gannet_update_args& args, uint64_t i) {
  return element(args.segments, args.segment_stride, i);
}
inline const gannet_tensor& tensor(const gannet_step_args& args, uint64_t i) {
  return element(args.tensors, args.tensor_stride, i);
}

#if GANNET_TARGET_MINOR >= 1
/// The square matrices of segment `s` in the state with index `state`, as [matrices][rows][rows],
/// or its factors, as [matrices][rows][width]; null if the segment's tensor has none.
template <class T>
T* square(const gannet_update_args& args, uint64_t s, uint64_t state) {
  return static_cast<T*>(args.squares[s * args.state_count + state]);
}
#endif

/// The pieces of a list, for `for (const gannet_update_args& piece : pieces)`.
class Pieces {
 public:
  Pieces(const gannet_update_args* first, uint64_t count, uint64_t stride) : first_(first), count_(count), stride_(stride) {}
  uint64_t size() const { return count_; }
  const gannet_update_args& operator[](uint64_t i) const { return element(first_, stride_, i); }
  class Iterator {
   public:
    Iterator(const Pieces& pieces, uint64_t i) : pieces_(&pieces), i_(i) {}
    const gannet_update_args& operator*() const { return (*pieces_)[i_]; }
    Iterator& operator++() {
      ++i_;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return i_ != other.i_; }

   private:
    const Pieces* pieces_;
    uint64_t i_;
  };
  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, count_}; }

 private:
  const gannet_update_args* first_;
  uint64_t count_, stride_;
};

#if GANNET_TARGET_MINOR >= 3
#if defined(__CUDACC__)
#define GANNET_NUMBERS_FUNCTION __host__ __device__
#elif defined(__HIP__) /* HIP's headers, which define these keywords, may not be included yet */
#define GANNET_NUMBERS_FUNCTION __attribute__((host)) __attribute__((device))
#else
#define GANNET_NUMBERS_FUNCTION
#endif
/// The step's numbers in a call, from its arguments or, with TAKES_DEVICE_NUMBERS, from
/// args.device_numbers. The host creates the object without reading the device numbers, and passes
/// it by value to a kernel, which does read them:
///
///   const StepNumbers numbers(args);
///   if (numbers.is_skipped()) return;
///   ... numbers.hyper(0) * numbers.grad_scale() * grad[i] ...
class StepNumbers {
 public:
  explicit StepNumbers(const gannet_update_args& args)
      : numbers_(GANNET_HAS(&args, gannet_update_args, device_numbers) ? args.device_numbers : nullptr),
        grad_scale_(args.grad_scale),
        step_(static_cast<double>(args.step)),
        hyper_(args.hyper) {}
  GANNET_NUMBERS_FUNCTION bool is_skipped() const { return numbers_ && numbers_[GANNET_NUMBER_SKIP] != 0; }
  GANNET_NUMBERS_FUNCTION double grad_scale() const { return numbers_ ? numbers_[GANNET_NUMBER_GRAD_SCALE] : grad_scale_; }
  GANNET_NUMBERS_FUNCTION double step() const { return numbers_ ? numbers_[GANNET_NUMBER_STEP] : step_; }
  GANNET_NUMBERS_FUNCTION double hyper(uint64_t i) const { return numbers_ ? numbers_[GANNET_NUMBER_HYPER + i] : hyper_[i]; }

 private:
  const double* numbers_;
  double grad_scale_, step_;
  const double* hyper_;
};
#undef GANNET_NUMBERS_FUNCTION
#endif

/// Base of an optimizer in C++: one object per parameter group. A derived class defines
///   static constexpr gannet_param_spec kParams[];              the parameters in the config
///   Derived(const gannet_host&, const Params&)                  or `using OptimizerBase::OptimizerBase`
///   void update(const gannet_update_args&);
/// and may define
///   bool supports(param_dtype, grad_dtype, out_dtype) const;    default: fp32 master and gradient, no copy
///   void prepare(const gannet_optimizer_context&);              gets the tensors; called before the functions below
///   uint64_t capabilities() const;                              default: ELEMENTWISE
///   std::vector<gannet_state_spec> states() const;              default: no states
///   std::vector<gannet_sum_spec> wanted_sums() const;           default: no sums
///   uint64_t range_alignment() const;                           default: any alignment
///   void sums(const gannet_update_args&, uint32_t round, double* sums);
///   void begin_step(const gannet_step_args&); void end_step(const gannet_step_args&);
///   void evaluate(const gannet_update_args&);                   the weights for evaluation, if they are not the trained ones
///   uint32_t reduces_gradients(uint64_t step) const;            with OWNS_GRAD_REDUCTION: a gannet_gradient_reduction
///   uint64_t workspace_bytes() const;                           with USES_WORKSPACE: per piece, independent of its length
///   uint64_t workspace_bytes_per_element() const;               plus this many bytes per element
///   void perturb(const gannet_update_args&);                    with PERTURBS: writes the perturbed parameters to `out`
///   bool wants_second_gradient(uint64_t step) const;            with SECOND_GRADIENT: whether update() of this step needs one
///   void update_many(const Pieces&);                            with TAKES_LISTS; default: update() of each piece
///   void sums_many(const Pieces&, uint32_t round, double* const* sums);   likewise
class OptimizerBase : public HostServices {
 public:
  OptimizerBase(const gannet_host& host, const Params&) : HostServices(host) {}
  bool supports(uint32_t param_dtype, uint32_t grad_dtype, uint32_t out_dtype) const {
    return param_dtype == GANNET_FLOAT32 && grad_dtype == GANNET_FLOAT32 && out_dtype == GANNET_DTYPE_NONE;
  }
  void prepare(const gannet_optimizer_context&) {}
  uint64_t capabilities() const { return GANNET_OPTIMIZER_ELEMENTWISE; }
  std::vector<gannet_state_spec> states() const { return {}; }
  std::vector<gannet_sum_spec> wanted_sums() const { return {}; }
  uint64_t range_alignment() const { return 0; }
  uint64_t workspace_bytes() const { return 0; }
  uint64_t workspace_bytes_per_element() const { return 0; }
  void sums(const gannet_update_args&, uint32_t, double*) {}
  void begin_step(const gannet_step_args&) {}
  void end_step(const gannet_step_args&) {}
  void evaluate(const gannet_update_args&) {}
  uint32_t reduces_gradients(uint64_t) const { return GANNET_REDUCED_BY_HOST; }
  void perturb(const gannet_update_args&) {}
  bool wants_second_gradient(uint64_t) const { return false; }
  void update_many(const Pieces&) {}
  void sums_many(const Pieces&, uint32_t, double* const*) {}
};

namespace detail {

template <class Derived>
struct OptimizerHolder {
  OptimizerHolder(const gannet_host& host, const Params& params) : optimizer(host, params) {}
  Derived optimizer;
  std::vector<gannet_state_spec> states;
  std::vector<gannet_sum_spec> sums;
};

// A call's arguments, in the struct that this header defines. Fields that an older host's shorter
// struct lacks are zero or null (a loss is NaN), so that a rule may copy the complete struct.
template <class T>
class WholeArgs {
 public:
  explicit WholeArgs(const T* args) : args_(args) {
    if (args->struct_size >= sizeof(T)) return;
    std::memset(static_cast<void*>(&copy_), 0, sizeof(T));
#if GANNET_TARGET_MINOR >= 4
    copy_.loss = std::numeric_limits<double>::quiet_NaN();  // unknown
#endif
    std::memcpy(static_cast<void*>(&copy_), args, args->struct_size);
    args_ = &copy_;
  }
  WholeArgs(const WholeArgs&) = delete;
  const T& operator*() const { return *args_; }

 private:
  const T* args_;
  T copy_;  // set only if it is used
};

// Whether a class overrides a function of OptimizerBase.
template <class OfDerived, class OfBase>
inline constexpr bool kIsOwn = !std::is_same_v<OfDerived, OfBase>;

// The types that supports() accepts, for the sentence of a refusal: parameter/gradient/copy.
template <class Optimizer>
std::string types_taken(Optimizer& optimizer) {
  constexpr uint32_t kTypes[] = {GANNET_DTYPE_NONE, GANNET_FLOAT32, GANNET_BFLOAT16, GANNET_FLOAT16, GANNET_FLOAT64};
  constexpr const char* kNames[] = {"none", "fp32", "bf16", "fp16", "fp64"};
  std::string taken;
  for (int param = 1; param < 5; ++param)
    for (int grad = 1; grad < 5; ++grad)
      for (int copy = 0; copy < 5; ++copy)
        if (optimizer.supports(kTypes[param], kTypes[grad], kTypes[copy]))
          taken += std::string(taken.empty() ? "" : ", ") + kNames[param] + "/" + kNames[grad] + "/" + kNames[copy];
  return taken.empty() ? "none" : "parameter/gradient/copy of " + taken;
}

template <class Derived>
inline GANNET_TABLE gannet_optimizer_api kOptimizerApi = [] {
  using Holder = OptimizerHolder<Derived>;
  gannet_optimizer_api api{};
  api.struct_size = sizeof(api);
  api.create = [](const gannet_host* host, const gannet_params* params, void** self, gannet_error* error) -> int32_t {
    return guarded(error, [&] { *self = new Holder(*host, Params(*params)); });
  };
  api.destroy = [](void* self) { delete static_cast<Holder*>(self); };
  api.describe = [](void* self, const gannet_optimizer_context* context, gannet_optimizer_description* description,
                    gannet_error* error) -> int32_t {
    return guarded(error, [&] {
      auto& held = *static_cast<Holder*>(self);
      held.optimizer.prepare(*context);
      held.states = held.optimizer.states();
      held.sums = held.optimizer.wanted_sums();
      description->capabilities = held.optimizer.capabilities();
      description->states = held.states.data();
      description->state_count = held.states.size();
      description->state_stride = sizeof(gannet_state_spec);
      description->sums = held.sums.data();
      description->sum_count = held.sums.size();
      description->sum_stride = sizeof(gannet_sum_spec);
      description->range_alignment = held.optimizer.range_alignment();
#if GANNET_TARGET_MINOR >= 1
      if (GANNET_HAS(description, gannet_optimizer_description, workspace_bytes_per_element)) {
        description->workspace_bytes = held.optimizer.workspace_bytes();
        description->workspace_bytes_per_element = held.optimizer.workspace_bytes_per_element();
      }
#endif
    });
  };
  api.supports = [](void* self, uint32_t param, uint32_t grad, uint32_t out, gannet_error* error) -> int32_t {
    return guarded(error, [&] {
      if (!static_cast<Holder*>(self)->optimizer.supports(param, grad, out))
        throw Failure(GANNET_UNSUPPORTED,
                      "it does not take these types, but " + types_taken(static_cast<Holder*>(self)->optimizer));
    });
  };
  api.update = [](void* self, const gannet_update_args* args, gannet_error* error) -> int32_t {
    return guarded(error, [&] { static_cast<Holder*>(self)->optimizer.update(*WholeArgs(args)); });
  };
  if constexpr (kIsOwn<decltype(&Derived::sums), decltype(&OptimizerBase::sums)>)
    api.sums = [](void* self, const gannet_update_args* args, uint32_t round, double* sums, gannet_error* error) -> int32_t {
      return guarded(error, [&] { static_cast<Holder*>(self)->optimizer.sums(*WholeArgs(args), round, sums); });
    };
  if constexpr (kIsOwn<decltype(&Derived::begin_step), decltype(&OptimizerBase::begin_step)>)
    api.begin_step = [](void* self, const gannet_step_args* args, gannet_error* error) -> int32_t {
      return guarded(error, [&] { static_cast<Holder*>(self)->optimizer.begin_step(*WholeArgs(args)); });
    };
  if constexpr (kIsOwn<decltype(&Derived::end_step), decltype(&OptimizerBase::end_step)>)
    api.end_step = [](void* self, const gannet_step_args* args, gannet_error* error) -> int32_t {
      return guarded(error, [&] { static_cast<Holder*>(self)->optimizer.end_step(*WholeArgs(args)); });
    };
  if constexpr (kIsOwn<decltype(&Derived::evaluate), decltype(&OptimizerBase::evaluate)>)
    api.evaluate = [](void* self, const gannet_update_args* args, gannet_error* error) -> int32_t {
      return guarded(error, [&] { static_cast<Holder*>(self)->optimizer.evaluate(*WholeArgs(args)); });
    };
  if constexpr (kIsOwn<decltype(&Derived::reduces_gradients), decltype(&OptimizerBase::reduces_gradients)>)
    api.reduces_gradients = [](void* self, uint64_t step, uint32_t* reduces, gannet_error* error) -> int32_t {
      return guarded(error, [&] { *reduces = static_cast<Holder*>(self)->optimizer.reduces_gradients(step); });
    };
#if GANNET_TARGET_MINOR >= 2
  if constexpr (kIsOwn<decltype(&Derived::perturb), decltype(&OptimizerBase::perturb)>)
    api.perturb = [](void* self, const gannet_update_args* args, gannet_error* error) -> int32_t {
      return guarded(error, [&] { static_cast<Holder*>(self)->optimizer.perturb(*WholeArgs(args)); });
    };
  if constexpr (kIsOwn<decltype(&Derived::wants_second_gradient), decltype(&OptimizerBase::wants_second_gradient)>)
    api.wants_second_gradient = [](void* self, uint64_t step, uint32_t* wants, gannet_error* error) -> int32_t {
      return guarded(error, [&] { *wants = static_cast<Holder*>(self)->optimizer.wants_second_gradient(step) ? 1 : 0; });
    };
#endif
#if GANNET_TARGET_MINOR >= 3
  api.update_many = [](void* self, const gannet_update_args* args, uint64_t count, uint64_t stride,
                       gannet_error* error) -> int32_t {
    return guarded(error, [&] {
      auto& optimizer = static_cast<Holder*>(self)->optimizer;
      const Pieces pieces(args, count, stride);
      if constexpr (kIsOwn<decltype(&Derived::update_many), decltype(&OptimizerBase::update_many)>)
        optimizer.update_many(pieces);
      else
        for (const gannet_update_args& piece : pieces) optimizer.update(piece);
    });
  };
  if constexpr (kIsOwn<decltype(&Derived::sums), decltype(&OptimizerBase::sums)>)
    api.sums_many = [](void* self, const gannet_update_args* args, uint64_t count, uint64_t stride, uint32_t round,
                       double* const* sums, gannet_error* error) -> int32_t {
      return guarded(error, [&] {
        auto& optimizer = static_cast<Holder*>(self)->optimizer;
        const Pieces pieces(args, count, stride);
        if constexpr (kIsOwn<decltype(&Derived::sums_many), decltype(&OptimizerBase::sums_many)>)
          optimizer.sums_many(pieces, round, sums);
        else
          for (uint64_t i = 0; i < count; ++i) optimizer.sums(pieces[i], round, sums[i]);
      });
    };
#endif
  return api;
}();

}  // namespace detail

}  // namespace gannet::sdk
