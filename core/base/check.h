// Checks an internal invariant. A failure is a bug in Gannet, never a user's mistake (those throw
// gannet::Error with advice).
#pragma once

#include <gannet/error.h>

#include <string>

#define GANNET_CHECK(condition, ...)                                                                        \
  do {                                                                                                      \
    if (!(condition))                                                                                       \
      throw ::gannet::Error(::gannet::ErrorCode::kInternal,                                                 \
                            std::string(__FILE__ ":") + std::to_string(__LINE__) +                          \
                                ": check failed: " #condition __VA_OPT__(+": " + std::string(__VA_ARGS__)), \
                            "this is a defect of Gannet: please report it with the text above");            \
  } while (false)
