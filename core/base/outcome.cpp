#include "base/outcome.h"

#include <charconv>
#include <new>

#include "base/check.h"
#include "base/format.h"

namespace gannet {
namespace {

// An outcome is "+<result>", or "-<code> <bytes of the message> <message><next step>". Returns the
// latter.
std::string text_of(const Error& error) {
  return formatted("-{} {} ", static_cast<int>(error.code()), error.message().size()) + error.message() + error.next_step();
}

// Parses a number up to the next space, and moves `at` past the space.
size_t number_at(const std::string& text, size_t& at) {
  size_t number = 0;
  const auto [end, status] = std::from_chars(text.data() + at, text.data() + text.size(), number);
  const auto behind = static_cast<size_t>(end - text.data());
  GANNET_CHECK(status == std::errc() && behind < text.size() && text[behind] == ' ', "an outcome");
  at = behind + 1;
  return number;
}

}  // namespace

std::string outcome(const std::function<std::string()>& part) {
  try {
    return '+' + part();
  } catch (const Error& error) {
    return text_of(error);
  } catch (const std::bad_alloc&) {
    return text_of({ErrorCode::kOutOfMemory, "memory could not be allocated"});
  } catch (const std::exception& error) {
    return text_of({ErrorCode::kInternal, error.what()});
  } catch (...) {
    return text_of({ErrorCode::kInternal, "an exception that is not a std::exception"});
  }
}

std::string outcome_of(const std::function<void()>& part) {
  return outcome([&] {
    part();
    return std::string();
  });
}

std::string outcome_of_errors(const std::function<void()>& part) {
  try {
    part();
    return "+";
  } catch (const Error& error) {
    return text_of(error);
  }
}

std::optional<Error> error_in(const std::string& outcome) {
  GANNET_CHECK(!outcome.empty() && (outcome[0] == '+' || outcome[0] == '-'), "an outcome");
  if (outcome[0] == '+') return std::nullopt;
  size_t at = 1;
  const auto code = static_cast<ErrorCode>(number_at(outcome, at));
  const size_t size = number_at(outcome, at);
  GANNET_CHECK(size <= outcome.size() - at, "an outcome");
  return Error(code, outcome.substr(at, size), outcome.substr(at + size));
}

std::string result_in(const std::string& outcome) {
  GANNET_CHECK(!outcome.empty() && outcome[0] == '+', "an outcome with a result");
  return outcome.substr(1);
}

Error of_rank(size_t rank, size_t ranks, const Error& error) {
  return ranks == 1 ? error : Error(error.code(), formatted("rank {}: {}", rank, error.message()), error.next_step());
}

std::vector<std::string> results_of(const std::vector<std::string>& outcomes) {
  for (size_t rank = 0; rank < outcomes.size(); ++rank)
    if (const auto error = error_in(outcomes[rank])) throw of_rank(rank, outcomes.size(), *error);
  std::vector<std::string> results;
  for (const std::string& outcome : outcomes) results.push_back(result_in(outcome));
  return results;
}

}  // namespace gannet
