#include <gannet/log.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <mutex>

namespace gannet {
namespace {

struct State {
  std::mutex mutex;
  LogSink sink;
  LogLevel level = LogLevel::kInfo;
  std::shared_ptr<spdlog::logger> logger;
};

// Never destroyed, since a line may be logged while the program's static objects are destroyed.
State& state() {
  static State& instance = *[] {
    auto* created = new State;
    created->logger = std::make_shared<spdlog::logger>("gannet", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    created->logger->set_level(spdlog::level::trace);
    created->logger->set_pattern("%v");
    return created;
  }();
  return instance;
}

std::string prefix() {
  const char* world = std::getenv("WORLD_SIZE");
  const char* rank = std::getenv("RANK");
  return world && rank && std::atoi(world) > 1 ? std::string("[gannet ") + rank + "] " : "[gannet] ";
}

}  // namespace

void set_log_sink(LogSink sink) {
  std::lock_guard lock(state().mutex);
  state().sink = std::move(sink);
}

void set_log_level(LogLevel level) {
  std::lock_guard lock(state().mutex);
  state().level = level;
}

LogLevel log_level() {
  std::lock_guard lock(state().mutex);
  return state().level;
}

void log(LogLevel level, const std::string& text) {
  LogSink sink;
  {
    std::lock_guard lock(state().mutex);
    if (level < state().level) return;
    sink = state().sink;
  }
  if (sink) return sink(level, text);
  const char* mark = level == LogLevel::kError ? "error: " : level == LogLevel::kWarning ? "warning: " : "";
  state().logger->log(spdlog::level::info, "{}{}{}", prefix(), mark, text);
  state().logger->flush();
}

}  // namespace gannet
