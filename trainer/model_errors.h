// Translates LibTorch's exceptions from a model, because a mismatch of batch and model is the
// program's mistake.
//
//   const BatchMeasurement measured = of_model("update 3, forward of the model", [&] { return measure(batch); });
#pragma once

#include <string>
#include <utility>

namespace gannet {

// Must be called within an exception handler. A c10::Error becomes Error(kArgument) with the first
// line of LibTorch's text and no C++ stack. Out-of-memory and device errors, gannet::Error and the
// program's own exceptions are rethrown unchanged.
[[noreturn]] void rethrow_from_model(const std::string& where);

// Returns the result of `call`; its exceptions pass through rethrow_from_model.
template <class Call>
auto of_model(const std::string& where, Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (...) {
    rethrow_from_model(where);
  }
}

}  // namespace gannet
