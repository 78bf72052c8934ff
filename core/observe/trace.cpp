#include "observe/trace.h"

#include <gannet/log.h>
#include <gannet/value.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/format.h"

namespace gannet::observe {
namespace {

std::string microseconds(std::chrono::steady_clock::duration time) {
  const int64_t ns = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  char text[40];
  std::snprintf(text, sizeof(text), "%" PRId64 ".%03" PRId64, ns / 1000, ns % 1000);
  return text;
}

std::string quoted(std::string_view text) { return Value(std::string(text)).to_json(); }

}  // namespace

std::string trace_path(const std::string& path, uint32_t rank) {
  std::string result = path;
  if (const size_t at = result.find("{rank}"); at != std::string::npos) return result.replace(at, 6, std::to_string(rank));
  if (rank == 0) return result;
  const std::filesystem::path whole(path);
  return (whole.parent_path() / (formatted("{}.rank{}{}", whole.stem().string(), rank, whole.extension().string()))).string();
}

Trace::Trace(Options options) : options_(std::move(options)), output_({.who = "gannet.trace"}) {
  const std::string path = trace_path(options_.path, options_.rank);
  std::error_code ignored;  // a file that cannot be written is reported at the first write
  std::filesystem::remove(path, ignored);
  file_ = output_.open(path);
}

Trace::~Trace() {
  std::lock_guard lock(mutex_);
  end();
  if (!is_begun_ && options_.rank == 0)
    log_info(formatted("gannet.trace: nothing was traced: the run was before step {} when it ended", options_.first_step));
}

void Trace::at(int64_t step, int64_t micro_batch) {
  std::lock_guard lock(mutex_);
  const bool is_new_step = step != step_;
  step_ = step;
  micro_batch_ = micro_batch;
  is_on_ = !is_ended_ && options_.first_step <= step && step <= options_.last_step;
  if (is_begun_ && step > options_.last_step) end();
  if (is_new_step) output_.flush();
  if (is_on_ && !is_begun_) name_thread(::syscall(SYS_gettid));
}

void Trace::end() {
  if (is_begun_ && !std::exchange(is_ended_, true)) output_.add(file_, "\n]\n");
}

// Gives the process and the engine's thread their names in the viewer.
void Trace::name_thread(int64_t thread) {
  const std::string pid = std::to_string(options_.rank);
  add(R"({"name":"process_name","ph":"M","pid":)" + pid + R"(,"args":{"name":"rank )" + pid + "\"}}");
  add(R"({"name":"thread_name","ph":"M","pid":)" + pid + ",\"tid\":" + std::to_string(thread) + R"(,"args":{"name":"engine"}})");
}

void Trace::add(std::string event) { output_.add(file_, (std::exchange(is_begun_, true) ? ",\n" : "[\n") + event); }

void Trace::span(const char* name, Time began, Time ended) {
  std::lock_guard lock(mutex_);
  if (!is_on_) return;
  add(formatted(
      "{{\"name\":{},\"ph\":\"X\",\"ts\":{},\"dur\":{},\"pid\":{},\"tid\":{},\"args\":{{\"step\":{},\"micro_batch\":{}}}}}",
      quoted(name), microseconds(began.time_since_epoch()), microseconds(ended - began), options_.rank, ::syscall(SYS_gettid),
      step_, micro_batch_));
}

void Trace::flight(const char* kind, std::string_view name, Time began, Time ended, int64_t bytes) {
  std::lock_guard lock(mutex_);
  if (!is_on_) return;
  const std::string common = formatted("{{\"name\":{},\"cat\":{},\"id\":{},\"pid\":{},\"tid\":0,\"ph\":", quoted(name),
                                       quoted(kind), ++flights_, options_.rank);
  add(formatted("{}\"b\",\"ts\":{},\"args\":{{\"step\":{},\"micro_batch\":{},\"bytes\":{}}}}}", common,
                microseconds(began.time_since_epoch()), step_, micro_batch_, bytes));
  add(formatted("{}\"e\",\"ts\":{}}}", common, microseconds(ended.time_since_epoch())));
}

}  // namespace gannet::observe
