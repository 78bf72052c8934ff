/// Gannet's own log lines. The library writes to stderr through one sink, which the program may
/// replace.
///
///   gannet::set_log_sink([](gannet::LogLevel level, const std::string& line) { my_logger(line); });
///   gannet::set_log_level(gannet::LogLevel::kWarning);
#pragma once

#include <functional>
#include <string>

namespace gannet {

enum class LogLevel { kDebug = 1, kInfo = 2, kWarning = 3, kError = 4, kOff = 5 };

using LogSink = std::function<void(LogLevel, const std::string&)>;

/// Replaces the sink; an empty function restores stderr. Thread-safe.
void set_log_sink(LogSink sink);
void set_log_level(LogLevel level);
LogLevel log_level();

/// Writes one line: "[gannet] text", "[gannet 1] text" on rank 1 of several.
void log(LogLevel level, const std::string& text);
inline void log_info(const std::string& text) { log(LogLevel::kInfo, text); }
inline void log_warning(const std::string& text) { log(LogLevel::kWarning, text); }

}  // namespace gannet
