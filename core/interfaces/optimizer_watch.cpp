#include "interfaces/optimizer_watch.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <gannet/sdk_reduce.hpp>
#include <map>
#include <memory>
#include <new>

#include "base/format.h"
#include "base/text.h"
#include "interfaces/call.h"

namespace gannet {
namespace {

constexpr size_t kMargin = 4096;  // bytes on either side: enough for plugins that overrun by a whole vector or page
constexpr unsigned char kCanary = 0xc5;

// Describes where in the model an element of an array is.
using ElementDescription = std::function<std::string(uint64_t element)>;

// The bytes per element; 0 for a missing array, since its dtype is meaningless.
uint64_t bytes_of(const void* array, uint32_t dtype) { return array ? sdk::bytes_of(dtype) : 0; }

// A copy of an array, surrounded by canaries.
class WatchedArray {
 public:
  WatchedArray(std::string name, const void* original, uint64_t count, uint64_t element_bytes, bool may_write,
               ElementDescription place)
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
  // Describes the first forbidden write that is found; "" if there is none.
  std::string found() const {
    if (!memory_) return "";
    const auto differs = [](unsigned char byte) { return byte != kCanary; };
    const unsigned char *begin = memory_.get(), *first = begin + kMargin, *end = first + bytes_;
    const unsigned char* last = begin + (bytes_ + 63) / 64 * 64 + 2 * kMargin;
    if (const auto* behind = std::find_if(end, last, differs); behind != last)
      return formatted("wrote to byte {} after the end of {}", behind - end + 1, described());
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
  struct FreeDeleter {
    void operator()(unsigned char* memory) const { std::free(memory); }
  };
  std::string name_;
  void* original_;
  uint64_t bytes_, element_bytes_;
  bool may_write_;
  ElementDescription place_;
  std::unique_ptr<unsigned char, FreeDeleter> memory_;
};

// The copies of all arrays of one call.
class WatchedArrays {
 public:
  void* add(std::string name, const void* original, uint64_t count, uint64_t element_bytes, bool may_write,
            ElementDescription place) {
    return all_.emplace_back(std::move(name), original, count, element_bytes, may_write, std::move(place)).data();
  }
  // Adds an array that several pieces of a list may share: it has one copy, so that sums over rows
  // and columns can accumulate in it.
  void* add_shared(std::string name, const void* original, uint64_t count, uint64_t element_bytes, bool may_write,
                   ElementDescription place) {
    if (!original) return nullptr;
    void*& copy = shared_[original];
    if (!copy) copy = add(std::move(name), original, count, element_bytes, may_write, std::move(place));
    return copy;
  }
  // Throws for the first array with a forbidden write; if there is none, copies the results back.
  void finish(const plugin::Plugin& plugin, const char* function, uint64_t step) const {
    for (const WatchedArray& one : all_)
      if (const std::string found = one.found(); !found.empty())
        throw plugin::fault(plugin, formatted("{} {}, in {} of step {}", interfaces::who(plugin), found, function, step));
    for (const WatchedArray& one : all_) one.give_back();
  }

 private:
  std::vector<WatchedArray> all_;
  std::map<const void*, void*> shared_;  // copies by original array
};

ElementDescription in_tensors(const gannet_update_args& args) {
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

ElementDescription of_group(const WatchContext& context, gannet_state_extent extent) {
  return [&context, extent](uint64_t element) {
    if (extent == GANNET_STATE_PER_TENSOR && element < context.tensors.size())
      return formatted("that of tensor '{}'", context.tensors[element].name);
    return extent == GANNET_STATE_SCALAR ? std::string("that of the group") : formatted("number {} of the group", element);
  };
}

ElementDescription in_list(const char* what) {
  return [what](uint64_t element) { return formatted("{} {}", what, element); };
}

void add_hyper(WatchedArrays& arrays, const WatchContext& context, const double*& hyper, uint64_t count) {
  hyper = static_cast<const double*>(arrays.add("hyper", hyper, count, sizeof(double), false, [&context](uint64_t i) {
    const auto& names = context.optimizer.hyper_names();
    return i < names.size() ? formatted("'{}'", names[i]) : std::string("no name");
  }));
}

// The arrays that a call may write to: arrays of the piece, and replicated ones.
struct WriteRights {
  bool param = false, out = false, cut_states = false, group_states = false, lines = false;
};

uint64_t values_in(const gannet_update_args& piece, const Optimizer::State& state, const WatchContext& context) {
  return state.is_served() ? piece.numel / context.world_size : state.values_of(piece.numel);
}

// Adds the states. Sharded states exist only if there is a piece, to which they belong.
std::vector<void*> add_states(WatchedArrays& arrays, const WatchContext& context, void* const* states, uint64_t count,
                              const gannet_update_args* piece, const WriteRights& rights) {
  std::vector<void*> copies(count);  // null for square states, which have their own list
  for (uint64_t s = 0; s < count; ++s) {
    const Optimizer::State& state = context.optimizer.states()[s];
    if (state.has_matrices()) continue;
    const uint32_t dtype = state.dtype != GANNET_DTYPE_NONE                               ? uint32_t{state.dtype}
                           : state.extent == GANNET_STATE_PER_ELEMENT && piece != nullptr ? piece->param_dtype
                                                                                          : uint32_t{GANNET_FLOAT32};
    const uint64_t numel = !state.is_cut()    ? context.optimizer.group_numel(state)
                           : piece != nullptr ? values_in(*piece, state, context)
                                              : 0;
    const bool is_by_element = piece != nullptr && state.extent == GANNET_STATE_PER_ELEMENT && !state.is_served();
    const std::string name = formatted("the state '{}'", state.name);
    copies[s] = state.is_cut() ? arrays.add(name, states[s], numel, bytes_of(states[s], dtype), rights.cut_states,
                                            is_by_element ? in_tensors(*piece) : in_list("value"))
                               : arrays.add_shared(name, states[s], numel, bytes_of(states[s], dtype), rights.group_states,
                                                   of_group(context, state.extent));
  }
  return copies;
}

// Adds the sums over rows and columns. `lines` is the memory that the copied list points to.
double* const* add_lines(WatchedArrays& arrays, const WatchContext& context, double* const* originals, bool may_write,
                         std::vector<double*>& lines) {
  if (originals == nullptr) return nullptr;
  const auto& sums = context.optimizer.sums();
  for (size_t s = 0; s < sums.size(); ++s)
    lines.push_back(static_cast<double*>(arrays.add_shared(formatted("the lines of sum {}", s), originals[s],
                                                           originals[s] ? context.optimizer.line_count(sums[s]) : 0,
                                                           sizeof(double), may_write, in_list("line"))));
  return lines.data();
}

// Adds gannet_update_args::squares. `copies` is the memory that the copied list points to.
void* const* add_squares(WatchedArrays& arrays, const WatchContext& context, const gannet_update_args& args, bool may_write,
                         std::vector<void*>& copies) {
  if (args.squares == nullptr) return nullptr;
  for (uint64_t k = 0; k < args.segment_count; ++k)
    for (uint64_t s = 0; s < args.state_count; ++s) {
      const Optimizer::State& state = context.optimizer.states()[s];
      const auto& segment =
          *reinterpret_cast<const gannet_segment*>(reinterpret_cast<const char*>(args.segments) + k * args.segment_stride);
      void* const original = args.squares[k * args.state_count + s];
      const uint32_t dtype = state.dtype == GANNET_DTYPE_NONE ? uint32_t{GANNET_FLOAT32} : uint32_t{state.dtype};
      copies.push_back(arrays.add(formatted("the matrices '{}' of tensor '{}'", state.name, segment.name), original,
                                  original ? context.optimizer.matrices_of(state, segment.tensor_index).numel() : 0,
                                  bytes_of(original, dtype), may_write, in_list("value")));
    }
  return static_cast<void* const*>(
      arrays.add("the list of squares", copies.data(), copies.size(), sizeof(void*), false, in_list("entry")));
}

// The memory that the copied arguments of a call point to.
struct CopiedLists {
  std::vector<void*> states, squares;
  std::vector<double*> lines;
};

gannet_update_args copied(WatchedArrays& arrays, const gannet_update_args& args, const WatchContext& context,
                          const WriteRights& rights, CopiedLists& lists) {
  gannet_update_args copy = args;
  const ElementDescription place = in_tensors(args);
  copy.param = arrays.add("the parameter", args.param, args.numel, bytes_of(args.param, args.param_dtype), rights.param, place);
  copy.grad = arrays.add("the gradient", args.grad, args.numel, bytes_of(args.grad, args.grad_dtype), false, place);
  copy.second_grad =
      arrays.add("the second gradient", args.second_grad, args.numel, bytes_of(args.second_grad, args.param_dtype), false, place);
  copy.out = arrays.add("`out`", args.out, args.numel, bytes_of(args.out, args.out_dtype), rights.out, place);
  lists.states = add_states(arrays, context, args.states, args.state_count, &args, rights);
  copy.states = static_cast<void* const*>(
      arrays.add("the list of states", lists.states.data(), lists.states.size(), sizeof(void*), false, in_list("state")));
  add_hyper(arrays, context, copy.hyper, args.hyper_count);
  copy.segments = static_cast<const gannet_segment*>(
      arrays.add("the segments", args.segments, args.segment_count, args.segment_stride, false, in_list("segment")));
  const uint64_t sum_count = args.sums ? args.segment_count * args.sum_count : 0;
  copy.sums = static_cast<const double*>(
      arrays.add("the sums of earlier rounds", args.sums, sum_count, sizeof(double), false, in_list("sum")));
  copy.lines = add_lines(arrays, context, args.lines, rights.lines, lists.lines);
  copy.workspace = arrays.add("the workspace", args.workspace, args.workspace_bytes, 1, true, in_list("byte"));
  copy.squares = add_squares(arrays, context, args, rights.cut_states, lists.squares);
  copy.device_numbers = static_cast<const double*>(arrays.add_shared(
      "the device numbers", args.device_numbers, args.device_number_count, sizeof(double), false, in_list("number")));
  return copy;
}

// Copies all pieces of a list. `lists` is the memory that the copies point to.
std::vector<gannet_update_args> copied(WatchedArrays& arrays, const std::vector<gannet_update_args>& pieces,
                                       const WatchContext& context, const WriteRights& rights, std::deque<CopiedLists>& lists) {
  std::vector<gannet_update_args> copies;
  for (const gannet_update_args& piece : pieces) copies.push_back(copied(arrays, piece, context, rights, lists.emplace_back()));
  return copies;
}

// The step of a call. Only arrays in host memory are watched, so the device numbers are in host
// memory as well and can be read.
uint64_t step_of(const gannet_update_args& args) {
  return args.device_numbers ? static_cast<uint64_t>(args.device_numbers[GANNET_NUMBER_STEP]) : args.step;
}

constexpr WriteRights kRightsOfUpdate = {.param = true, .out = true, .cut_states = true};

}  // namespace

void OptimizerWatch::update(const gannet_update_args& args, const Context& context, const Update& call) const {
  WatchedArrays arrays;
  CopiedLists lists;
  call(copied(arrays, args, context, kRightsOfUpdate, lists));
  arrays.finish(plugin_, "update", step_of(args));
}

void OptimizerWatch::update_many(const Pieces& pieces, const Context& context,
                                 const std::function<void(const Pieces&)>& call) const {
  WatchedArrays arrays;
  std::deque<CopiedLists> lists;
  call(copied(arrays, pieces, context, kRightsOfUpdate, lists));
  arrays.finish(plugin_, "update_many", step_of(pieces[0]));
}

void OptimizerWatch::sums_many(const Pieces& pieces, const Context& context, double* const* sums,
                               const std::function<void(const Pieces&, double* const*)>& call) const {
  WatchedArrays arrays;
  std::deque<CopiedLists> lists;
  const Pieces copies = copied(arrays, pieces, context, {.lines = true}, lists);
  std::vector<double*> own;
  for (size_t i = 0; i < pieces.size(); ++i)
    own.push_back(static_cast<double*>(
        arrays.add("the sums", sums[i], pieces[i].segment_count * pieces[i].sum_count, sizeof(double), true, in_list("sum"))));
  call(copies, static_cast<double* const*>(
                   arrays.add("the list of sums", own.data(), own.size(), sizeof(double*), false, in_list("entry"))));
  arrays.finish(plugin_, "sums_many", step_of(pieces[0]));
}

void OptimizerWatch::evaluate(const gannet_update_args& args, const Context& context, const Update& call) const {
  WatchedArrays arrays;
  CopiedLists lists;
  call(copied(arrays, args, context, {.out = true}, lists));
  arrays.finish(plugin_, "evaluate", args.step);
}

void OptimizerWatch::perturb(const gannet_update_args& args, const Context& context, const Update& call) const {
  WatchedArrays arrays;
  CopiedLists lists;
  call(copied(arrays, args, context, {.out = true}, lists));
  arrays.finish(plugin_, "perturb", step_of(args));
}

void OptimizerWatch::sums(const gannet_update_args& args, const Context& context, double* sums,
                          const std::function<void(const gannet_update_args&, double*)>& call) const {
  WatchedArrays arrays;
  CopiedLists lists;
  const gannet_update_args copy = copied(arrays, args, context, {.lines = true}, lists);
  void* own = arrays.add("the sums", sums, args.segment_count * args.sum_count, sizeof(double), true, in_list("sum"));
  call(copy, static_cast<double*>(own));
  arrays.finish(plugin_, "sums", step_of(args));
}

void OptimizerWatch::step(const char* function, const gannet_step_args& args, const Context& context,
                          const std::function<void(const gannet_step_args&)>& call) const {
  WatchedArrays arrays;
  gannet_step_args copy = args;
  const std::vector<void*> states = add_states(arrays, context, args.states, args.state_count, nullptr, {.group_states = true});
  copy.states = static_cast<void* const*>(
      arrays.add("the list of states", states.data(), states.size(), sizeof(void*), false, in_list("state")));
  add_hyper(arrays, context, copy.hyper, args.hyper_count);
  const uint64_t sum_count = args.sums ? args.tensor_count * args.sum_count : 0;
  copy.sums = static_cast<const double*>(arrays.add("the sums", args.sums, sum_count, sizeof(double), false, in_list("sum")));
  std::vector<double*> lines;
  copy.lines =
      add_lines(arrays, context, const_cast<double* const*>(reinterpret_cast<const double* const*>(args.lines)), false, lines);
  copy.workspace = arrays.add("the workspace", args.workspace, args.workspace_bytes, 1, true, in_list("byte"));
  call(copy);
  arrays.finish(plugin_, function, args.step);
}

}  // namespace gannet
