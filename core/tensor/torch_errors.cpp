#include "tensor/torch_errors.h"

#include <c10/util/Exception.h>
#include <gannet/error.h>

#include <new>
#include <string>

#include "base/format.h"

namespace gannet {
namespace {

Error out_of_memory(const char* call, const std::string& reason) {
  return Error(ErrorCode::kOutOfMemory, formatted("there is not enough memory in {}: {}", call, reason),
               "recompute activations (\"gannet\": {\"activation_checkpointing\": {\"interval\": 1}}, or "
               "engine->gradient_checkpointing_enable(), for a model that gives its layers: docs/memory_ladder.md), make "
               "train_micro_batch_size_per_gpu smaller and gradient_accumulation_steps larger, shard more "
               "(zero_optimization.stage) or offload; `gannet estimate` says what fits");
}

// The message without the C++ stack trace, which does not help the user.
std::string first_line(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  return text.substr(0, text.find('\n'));
}

}  // namespace

void rethrow_as_ours(const char* call) {
  try {
    throw;
  } catch (const c10::OutOfMemoryError& error) {
    throw out_of_memory(call, first_line(error));
  } catch (const c10::AcceleratorError& error) {
    throw Error(ErrorCode::kDevice, formatted("the device reported an error in {}: {}", call, first_line(error)),
                "what failed may be an earlier operator: a device reports late. An index out of range is the usual reason; the "
                "process cannot use the device any more, resume from the last checkpoint in a new one");
  } catch (const c10::Error& error) {
    if (const auto ours = error_of(error)) throw *ours;
    // LibTorch's host allocator has no exception type of its own, so its errors are recognized by
    // their message.
    if (std::string(error.what_without_backtrace()).find("DefaultCPUAllocator") == std::string::npos) throw;
    throw out_of_memory(call, first_line(error));
  } catch (const std::bad_alloc&) {
    throw out_of_memory(call, "the host has none left");
  }
}

}  // namespace gannet
