// What the translating tables of optimizers share (optimizers_end.h).
#pragma once

#include <gannet/abi.h>

#include <functional>
#include <vector>

namespace gannet::accelerators::checked {

enum class Pass { kUpdate, kSums, kOut };  // what is written: parameters and states; nothing; `out`

// Keeps how long an element of each state is, by the object; forgets it.
void remember_states(void* self, const gannet_optimizer_description& description);
void forget_states(void* self);

// Calls `run` with the piece's arguments at the addresses that the CPU's kernels can use. On the stream of the arguments.
int32_t launch_update(void* self, const gannet_update_args& args, const char* optimizer, Pass pass, gannet_error* error,
                      const std::function<int32_t(const gannet_update_args&)>& run);

}  // namespace gannet::accelerators::checked
