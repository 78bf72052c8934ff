#include "model_errors.h"

#include <c10/util/Exception.h>
#include <gannet/error.h>

namespace gannet {

void rethrow_from_model(const std::string& where) {
  try {
    throw;
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::AcceleratorError&) {
    throw;
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    if (const auto ours = error_of(error)) throw *ours;  // Gannet's, e.g. a parameter not in memory
    // The host's allocator has no exception type of its own.
    if (text.find("DefaultCPUAllocator") != std::string::npos) throw;
    throw Error(ErrorCode::kArgument, where + ": LibTorch: " + text.substr(0, text.find('\n')),
                "the batch does not fit the model, or the labels its loss: compare the shapes and dtypes of a sample with what "
                "forward takes, token ids with the vocabulary and labels with the number of classes");
  }
}

}  // namespace gannet
