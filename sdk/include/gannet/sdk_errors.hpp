/// The wall between a plugin's C++ and the ABI: exceptions become status codes with a
/// message. Part of gannet/sdk.hpp.
///
///   int32_t create(..., gannet_error* error) noexcept {
///     return gannet::sdk::guarded(error, [&] {
///       if (bytes > kMost) throw gannet::sdk::Failure(GANNET_INVALID_ARGUMENT, "at most 1 GiB at a time: use several requests");
///     });
///   }
#pragma once

#if __cplusplus < 201703L
#error "the SDK needs C++17: compile with -std=c++17 or later"
#endif

#include <gannet/abi.h>

#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <utility>

// A table of functions for the host. While a HIP compiler compiles for the device it is const:
// a constexpr variable would exist on the device too, with the host's functions in it.
#ifdef __HIP_DEVICE_COMPILE__
#define GANNET_TABLE const
#else
#define GANNET_TABLE constexpr
#endif

namespace gannet::sdk {

/// An error with an ABI status code. The message should state what was found and what to do next.
class Failure : public std::exception {
 public:
  Failure(gannet_status status, std::string message) : status_(status), message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }
  gannet_status status() const noexcept { return status_; }

 private:
  gannet_status status_;
  std::string message_;
};

inline int32_t report(gannet_error* error, int32_t status, const char* message) noexcept {
  if (error && error->message && error->capacity > 0) {
    const size_t wanted = std::strlen(message);
    const size_t length = wanted < error->capacity ? wanted : error->capacity - 1;
    std::memcpy(error->message, message, length);
    error->message[length] = 0;
  }
  return status;
}

/// Runs `body`, and converts any exception to a status and a message. No exception passes this
/// wall.
template <class Body>
int32_t guarded(gannet_error* error, Body&& body) noexcept {
  try {
    body();
    return GANNET_OK;
  } catch (const Failure& failure) {
    return report(error, failure.status(), failure.what());
  } catch (const std::bad_alloc&) {
    return report(error, GANNET_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& exception) {
    return report(error, GANNET_INTERNAL, exception.what());
  } catch (...) {
    return report(error, GANNET_INTERNAL, "something was thrown that is not a std::exception");
  }
}

}  // namespace gannet::sdk
