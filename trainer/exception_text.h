// The text of an exception, for the ranks that did not throw it.
#pragma once

#include <gannet/error.h>

#include <exception>
#include <string>

namespace gannet {

/// Prefix of out-of-memory errors from an evaluation, which has a batch size of its own.
inline const std::string kInEvaluation = "in an evaluation";

/// Returns the text of an exception; a generic text for the null pointer that
/// std::current_exception() returns during unwinding.
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
