// The time of a save in its stored form: UTC, ISO 8601, with milliseconds.
#pragma once

#include <chrono>
#include <cstdio>
#include <ctime>
#include <string>

namespace gannet::checkpoint {

inline std::string utc_now() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char date[32], text[48];
  std::strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text, sizeof(text), "%s.%03dZ", date, static_cast<int>(milliseconds));
  return text;
}

}  // namespace gannet::checkpoint
