#include "interfaces/optimizer_watch.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "base/format.h"
#include "base/text.h"
#include "interfaces/call.h"

namespace gannet {
namespace {

constexpr size_t kMargin = 4096;  // on either side: a plugin that works by lanes, or by a page, does not leave it
constexpr unsigned char kCanary = 0xc5;

// Where an element of an array is in the model.
using Place = std::function<std::string(uint64_t element)>;

uint64_t bytes_of(uint32_t dtype) {
  switch (dtype) {
    case GANNET_FLOAT64:
    case GANNET_INT64:
      return 8;
    case GANNET_FLOAT32:
    case GANNET_INT32:
      return 4;
    case GANNET_FLOAT16:
    case GANNET_BFLOAT16:
    case GANNET_INT16:
      return 2;
    default:
      return 1;
  }
}

// A copy of an array, between canaries.
class Watched {
 public:
  Watched(std::string name, const void* original, uint64_t count, uint64_t element_bytes, bool may_write, Place place)
      : name_(std::move(name)),
        original_(const_cast<void*>(original)),
        bytes_(original ? count * element_bytes : 0),
        element_bytes_(element_bytes),
        may_write_(may_write),
        place_(std::move(place)) {
    if (!original) return;
    const size_t room = (bytes_ + 63) / 64 * 64 + 2 * kMargin;
    memory_.reset(static_cast<unsigned char*>(std::aligned_alloc(64, room)));
    if (!memory_) throw std::bad_alloc();
    std::memset(memory_.get(), kCanary, room);
    std::memcpy(data(), original_, bytes_);
  }
  void* data() const { return memory_ ? memory_.get() + kMargin : nullptr; }
  // "" where all is as it should be.
  std::string found() const {
    if (!memory_) return "";
    const auto differs = [](unsigned char byte) { return byte != kCanary; };
    const unsigned char *begin = memory_.get(), *first = begin + kMargin, *end = first + bytes_;
    const unsigned char* last = begin + (bytes_ + 63) / 64 * 64 + 2 * kMargin;
    if (const auto* behind = std::find_if(end, last, differs); behind != last)
      return formatted("wrote to byte {} behind the end of {}", behind - end + 1, described());
    if (const auto* before = std::find_if(begin, first, differs); before != first)
      return formatted("wrote to byte {} before the begin of {}", first - before, described());
    if (may_write_) return "";
    const auto* as_it_was = static_cast<const unsigned char*>(original_);
    const auto* changed = std::mismatch(first, end, as_it_was).first;
    if (changed == end) return "";
    const auto byte = static_cast<uint64_t>(changed - first);
    return formatted("wrote to {}, which this call only reads: {}, byte {}", name_, place_(byte / element_bytes_), byte);
  }
  void give_back() const {
    if (memory_ && may_write_) std::memcpy(original_, data(), bytes_);
  }

 private:
  std::string described() const {
    return bytes_ == 0 ? name_ : formatted("{}, which begins with {} and has {} bytes", name_, place_(0), bytes_);
  }
  struct Free {
    void operator()(unsigned char* memory) const { std::free(memory); }
  };
  std::string name_;
  void* original_;
  uint64_t bytes_, element_bytes_;
  bool may_write_;
  Place place_;
  std::unique_ptr<unsigned char, Free> memory_;
};

// The arrays of one call.
class Arrays {
 public:
  void* add(std::string name, const void* original, uint64_t count, uint64_t element_bytes, bool may_write, Place place) {
    return all_.emplace_back(std::move(name), original, count, element_bytes, may_write, std::move(place)).data();
  }
  // Throws for the first that is not as it should be; else what was computed goes where it belongs.
  void finish(const plugin::Plugin& plugin, const char* function, uint64_t step) const {
    for (const Watched& one : all_)
      if (const std::string found = one.found(); !found.empty())
        throw plugin::fault(plugin, formatted("{} {}, in {} of step {}", interfaces::who(plugin), found, function, step));
    for (const Watched& one : all_) one.give_back();
  }

 private:
  std::vector<Watched> all_;
};

Place in_tensors(const gannet_update_args& args) {
  return [&args](uint64_t element) {
    for (uint64_t s = 0; s < args.segment_count; ++s) {
      const auto& segment =
          *reinterpret_cast<const gannet_segment*>(reinterpret_cast<const char*>(args.segments) + s * args.segment_stride);
      if (element >= segment.offset && element - segment.offset < segment.numel)
        return formatted("tensor '{}', element {}", segment.name, segment.tensor_offset + element - segment.offset);
    }
    return formatted("element {} of the piece", element);
  };
}

Place of_group(const OptimizerWatch::Context& context, bool per_tensor) {
  return [&context, per_tensor](uint64_t element) {
    return per_tensor && element < context.tensors.size() ? formatted("that of tensor '{}'", context.tensors[element].name)
                                                          : std::string("that of the group");
  };
}

Place in_list(const char* what) {
  return [what](uint64_t element) { return formatted("{} {}", what, element); };
}

void add_hyper(Arrays& arrays, const OptimizerWatch::Context& context, const double*& hyper, uint64_t count) {
  hyper = static_cast<const double*>(arrays.add("hyper", hyper, count, sizeof(double), false, [&context](uint64_t i) {
    return i < context.hyper_names.size() ? formatted("'{}'", context.hyper_names[i]) : std::string("no name");
  }));
}

// The states, of which PER_ELEMENT ones are part of the piece. In update these may be written, in a step the others.
std::vector<void*> add_states(Arrays& arrays, const OptimizerWatch::Context& context, void* const* states, uint64_t count,
                              const gannet_update_args* piece, bool writes_elements, bool writes_own) {
  std::vector<void*> copies(count);
  for (uint64_t s = 0; s < count; ++s) {
    const Optimizer::State& state = context.states[s];
    const bool is_of_elements = state.extent == GANNET_STATE_PER_ELEMENT;
    const uint32_t dtype = state.dtype != GANNET_DTYPE_NONE ? uint32_t{state.dtype}
                           : is_of_elements && piece        ? piece->param_dtype
                                                            : uint32_t{GANNET_FLOAT32};
    const uint64_t numel = is_of_elements                            ? (piece ? piece->numel : 0)
                           : state.extent == GANNET_STATE_PER_TENSOR ? context.tensors.size()
                                                                     : 1;
    copies[s] = arrays.add(
        formatted("the state '{}'", state.name), states[s], numel, bytes_of(dtype), is_of_elements ? writes_elements : writes_own,
        is_of_elements && piece ? in_tensors(*piece) : of_group(context, state.extent == GANNET_STATE_PER_TENSOR));
  }
  return copies;
}

// The arrays of a piece; `states` are what the copy points to.
gannet_update_args copied(Arrays& arrays, const gannet_update_args& args, const OptimizerWatch::Context& context, bool updates,
                          std::vector<void*>& states) {
  gannet_update_args copy = args;
  const Place place = in_tensors(args);
  copy.param = arrays.add("the parameter", args.param, args.numel, bytes_of(args.param_dtype), updates, place);
  copy.grad = arrays.add("the gradient", args.grad, args.numel, bytes_of(args.grad_dtype), false, place);
  copy.out = arrays.add("the copy in the model's type", args.out, args.numel, bytes_of(args.out_dtype), updates, place);
  states = add_states(arrays, context, args.states, args.state_count, &args, updates, false);
  copy.states = static_cast<void* const*>(
      arrays.add("the list of states", states.data(), states.size(), sizeof(void*), false, in_list("state")));
  add_hyper(arrays, context, copy.hyper, args.hyper_count);
  copy.segments = static_cast<const gannet_segment*>(
      arrays.add("the segments", args.segments, args.segment_count, args.segment_stride, false, in_list("segment")));
  const uint64_t sum_count = args.sums ? args.segment_count * args.sum_count : 0;
  copy.sums = static_cast<const double*>(
      arrays.add("the sums of earlier rounds", args.sums, sum_count, sizeof(double), false, in_list("sum")));
  return copy;
}

}  // namespace

void OptimizerWatch::update(const gannet_update_args& args, const Context& context, const Update& call) const {
  Arrays arrays;
  std::vector<void*> states;
  call(copied(arrays, args, context, /*updates=*/true, states));
  arrays.finish(plugin_, "update", args.step);
}

void OptimizerWatch::sums(const gannet_update_args& args, const Context& context, double* sums,
                          const std::function<void(const gannet_update_args&, double*)>& call) const {
  Arrays arrays;
  std::vector<void*> states;
  const gannet_update_args copy = copied(arrays, args, context, /*updates=*/false, states);
  void* own = arrays.add("the sums", sums, args.segment_count * args.sum_count, sizeof(double), true, in_list("sum"));
  call(copy, static_cast<double*>(own));
  arrays.finish(plugin_, "sums", args.step);
}

void OptimizerWatch::step(const char* function, const gannet_step_args& args, const Context& context,
                          const std::function<void(const gannet_step_args&)>& call) const {
  Arrays arrays;
  gannet_step_args copy = args;
  const std::vector<void*> states = add_states(arrays, context, args.states, args.state_count, nullptr, false, true);
  copy.states = static_cast<void* const*>(
      arrays.add("the list of states", states.data(), states.size(), sizeof(void*), false, in_list("state")));
  add_hyper(arrays, context, copy.hyper, args.hyper_count);
  const uint64_t sum_count = args.sums ? args.tensor_count * args.sum_count : 0;
  copy.sums = static_cast<const double*>(arrays.add("the sums", args.sums, sum_count, sizeof(double), false, in_list("sum")));
  call(copy);
  arrays.finish(plugin_, function, args.step);
}

}  // namespace gannet
