// What an exception says, for ranks that did not throw it.
#pragma once

#include <gannet/error.h>

#include <exception>
#include <string>

namespace gannet {

/// How the sentence of an error begins that is of an evaluation, whose batches have a size of their own.
inline const std::string kInEvaluation = "in an evaluation";

/// Null, as during unwinding: nothing is known of it.
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
