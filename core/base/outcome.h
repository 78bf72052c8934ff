// Encodes the outcome of one rank's part in a common task as text for the other ranks. The outcome
// is the rank's result or its error.
//
//   const std::string mine = outcome([&] { return read_my_part(); });
//   const std::vector<std::string> results = results_of(gather(mine));   // all results, or the first error on every rank
#pragma once

#include <gannet/error.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace gannet {

/// Runs `part`, which may return any bytes, and encodes its result or exception. An exception other
/// than gannet::Error becomes one (kOutOfMemory, kInternal).
std::string outcome(const std::function<std::string()>& part);
/// Does the same for a part that has no result.
std::string outcome_of(const std::function<void()>& part);
/// The same, but an exception other than gannet::Error, such as one from a callback of the program,
/// propagates to the caller.
std::string outcome_of_errors(const std::function<void()>& part);

/// The error in an outcome; nullopt if the outcome has a result.
std::optional<Error> error_in(const std::string& outcome);
/// The result in an outcome, which must not hold an error.
std::string result_in(const std::string& outcome);
/// Returns the results of all ranks, or throws the first error, with the prefix "rank N: " if there
/// are several ranks.
std::vector<std::string> results_of(const std::vector<std::string>& outcomes);
/// Returns `error`, with the prefix "rank N: " if there are several ranks.
Error of_rank(size_t rank, size_t ranks, const Error& error);

}  // namespace gannet
