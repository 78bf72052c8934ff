// Text of an exception, for the ranks that did not throw it.
#pragma once

#include <gannet/error.h>

#include <exception>
#include <string>

namespace gannet {

/// Prefix of out-of-memory errors from an evaluation, which has its own batch size.
inline const std::string kInEvaluation = "in an evaluation";

/// Returns a generic text for a null pointer, as during unwinding.
inline std::string exception_text(const std::exception_ptr& thrown) {
  if (!thrown) return "an exception";
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    return error.message();
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception without a text";
  }
}

}  // namespace gannet
