// What one rank's part of a common task came to, as a text for the other ranks: its result, or its error.
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

/// Runs `part`, which may return any bytes; whatever it throws is in the text. An exception that is no gannet::Error becomes one
/// (kOutOfMemory, kInternal).
std::string outcome(const std::function<std::string()>& part);
/// The same of a part without a result.
std::string outcome_of(const std::function<void()>& part);

/// The error in an outcome; nullopt: it has a result.
std::optional<Error> error_in(const std::string& outcome);
/// The result in an outcome, which holds no error.
std::string result_in(const std::string& outcome);
/// Of the outcomes of all ranks: their results, or the first error is thrown, with "rank N: " in front where there are several.
std::vector<std::string> results_of(const std::vector<std::string>& outcomes);
/// `error` with "rank N: " in front, where there are several ranks.
Error of_rank(size_t rank, size_t ranks, const Error& error);

}  // namespace gannet
