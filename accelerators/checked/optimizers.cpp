#include "optimizers.h"

#include <algorithm>
#include <cstring>
#include <gannet/sdk.hpp>
#include <gannet/sdk_reduce.hpp>
#include <map>
#include <mutex>
#include <string>

#include "checker.h"
#include "memory.h"
#include "streams.h"

namespace gannet::accelerators::checked {
namespace {

struct StateLayout {
  uint32_t extent, dtype;
  uint64_t block;
};

std::mutex states_mutex;
std::map<void*, std::vector<StateLayout>>& states_of_objects() {  // guarded by states_mutex
  static auto* const states = new std::map<void*, std::vector<StateLayout>>;
  return *states;
}

// Translates the arrays of an update to host addresses, and lists how the launch accesses them.
class TranslatedUpdate {
 public:
  TranslatedUpdate(const gannet_update_args& given, const std::vector<StateLayout>& states, UpdatePass pass) {
    std::memcpy(&args, &given, std::min<size_t>(given.struct_size, sizeof(args)));
    name(args);
    args.param = take(args.param, sizeof_type(args.param_dtype), pass == UpdatePass::kUpdate);
    args.grad = take(args.grad, sizeof_type(args.grad_dtype), false);
    args.out = take(args.out, sizeof_type(args.out_dtype), true);
    args.second_grad = take(args.second_grad, sizeof_type(args.param_dtype), false);
    args.workspace = Memory::get().alias(args.workspace);
    args.device_numbers = Memory::get().alias(args.device_numbers);
    for (uint64_t i = 0; i < args.state_count; ++i) {
      const StateLayout& state = states.at(i);
      const uint64_t count = state.extent == GANNET_STATE_PER_BLOCK ? (args.numel + state.block - 1) / state.block : args.numel;
      const uint64_t bytes = sizeof_type(state.dtype == GANNET_DTYPE_NONE ? args.param_dtype : state.dtype);
      states_.push_back(take_bytes(args.states[i], count * bytes, pass == UpdatePass::kUpdate));
    }
    if (args.states) args.states = states_.data();
    for (uint64_t i = 0; args.squares && i < args.segment_count * args.state_count; ++i)
      squares_.push_back(take_bytes(args.squares[i], 1, pass == UpdatePass::kUpdate));  // the first byte represents the array
    if (args.squares) args.squares = squares_.data();
  }

  gannet_update_args args{};
  std::vector<Access> accesses;

 private:
  static uint64_t sizeof_type(uint32_t dtype) { return dtype == GANNET_DTYPE_NONE ? 0 : sdk::bytes_of(dtype); }

  template <class T>
  T* take(T* array, uint64_t element_bytes, bool writes) {
    return take_bytes(array, args.numel * element_bytes, writes);
  }
  template <class T>
  T* take_bytes(T* array, uint64_t bytes, bool writes) {
    if (array && Memory::get().is_device(array)) {
      const auto begin = reinterpret_cast<uint64_t>(array);
      accesses.push_back({begin, begin + bytes, writes});
    }
    return Memory::get().alias(array);
  }
  static void name(const gannet_update_args& args) {
    if (args.segment_count == 0 || !args.param) return;
    const std::string first = args.segments->name ? args.segments->name : "";
    Memory::get().set_name(args.param, args.segment_count == 1 ? first : first + "' and others of its range, '");
  }

  std::vector<void*> states_, squares_;
};

}  // namespace

void remember_states(void* self, const gannet_optimizer_description& description) {
  std::vector<StateLayout> states;
  for (uint64_t i = 0; i < description.state_count; ++i) {
    const auto& state = *reinterpret_cast<const gannet_state_spec*>(reinterpret_cast<const char*>(description.states) +
                                                                    i * description.state_stride);
    states.push_back({state.extent, state.dtype, std::max<uint64_t>(state.block, 1)});
  }
  const std::lock_guard lock(states_mutex);
  states_of_objects()[self] = std::move(states);
}

void forget_states(void* self) {
  const std::lock_guard lock(states_mutex);
  states_of_objects().erase(self);
}

int32_t launch_update(void* self, const gannet_update_args& args, const char* optimizer, UpdatePass pass, gannet_error* error,
                      const std::function<int32_t(const gannet_update_args&)>& run) {
  return sdk::guarded(error, [&] {
    std::vector<StateLayout> states;
    {
      const std::lock_guard lock(states_mutex);
      states = states_of_objects()[self];
    }
    TranslatedUpdate piece(args, states, pass);
    Actor& stream = args.stream ? static_cast<Stream*>(args.stream)->actor : current_stream(args.device).actor;
    ++Checker::get().counters().updates;
    Checker::get().launch(stream, std::string(pass == UpdatePass::kSums ? "sums of " : "update of ") + optimizer, piece.accesses);
    piece.args.stream = nullptr;
    const int32_t status = run(piece.args);
    // The error already holds the optimizer's message.
    if (status != GANNET_OK)
      throw sdk::Failure(static_cast<gannet_status>(status), error && error->message ? error->message : "");
    if (pass == UpdatePass::kSums) Checker::get().host_waits_for(stream);  // the host reads the sums
  });
}

}  // namespace gannet::accelerators::checked
