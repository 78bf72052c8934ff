#include "plugin/inside.h"

#include <gannet/log.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>

#include "base/format.h"
#include "base/text.h"
#include "plugin/ends.h"

namespace gannet::plugin {
namespace {

thread_local const PluginCallMark* innermost = nullptr;
std::atomic<uint64_t> restored{0};

template <size_t kBytes>
void copy(char (&into)[kBytes], const char* text) {
  if (text) memccpy(into, text, 0, kBytes - 1);  // the last byte stays 0
  if (!text) into[0] = 0;
}

// Warns only once per plugin and call, since such a plugin changes the environment in every step.
void warn_of_environment(const std::string& who, const char* call, const FloatEnvironment& left) {
  static auto& mutex = *new std::mutex;
  static auto& told = *new std::set<std::string>;
  {
    const std::lock_guard lock(mutex);
    if (!told.insert(formatted("{} {}", who, call)).second) return;
  }
  const char* what = left.flushes_denormals()    ? "denormal numbers count as 0"
                     : !left.rounds_to_nearest() ? "the rounding mode is another"
                                                 : "the control word of the floating-point unit is another";
  log_warning(
      formatted("{} changed how this thread computes, in {}: {}. It was put back; tell the plugin's author (-ffast-math does it, "
                "too: a plugin is compiled without)",
                who, call, what));
}

}  // namespace

std::string text_of(const CallPlace& place) {
  std::string text = *place.call ? formatted(", in {}", place.call) : "";
  if (place.step > 0) text += formatted(" of step {}", place.step);
  if (place.tensor && *place.tensor) text += formatted(", tensor '{}'", printable(place.tensor));
  return text;
}

PluginCallMark::PluginCallMark(const Plugin& plugin, const CallPlace& place)
    : plugin_(&plugin), place_(place), outer_(innermost), environment_(FloatEnvironment::now()) {
  enter();
}

PluginCallMark::PluginCallMark(const char* file)
    : plugin_(nullptr), file_(file), place_{"opening the file"}, outer_(innermost), environment_(FloatEnvironment::now()) {
  enter();
}

PluginCallMark::PluginCallMark(const PluginCallMark* caller)
    : plugin_(caller ? caller->plugin_ : nullptr),
      file_(caller ? caller->file_ : nullptr),
      place_(caller ? caller->place_ : CallPlace{}),
      outer_(innermost),
      environment_(FloatEnvironment::now()) {
  if (caller) enter();
}

PluginCallMark::~PluginCallMark() {
  if (innermost != this) return;  // the mark has no caller, or was forgotten
  innermost = outer_;
  if (outer_)
    outer_->record();
  else
    call_record().is_inside.store(0, std::memory_order_relaxed);
  if (FloatEnvironment::now() != environment_) put_back();
}

const PluginCallMark* PluginCallMark::current() { return innermost; }

void PluginCallMark::forget() { innermost = nullptr; }

void PluginCallMark::enter() {
  watch_ends();
  innermost = this;
  record();
}

void PluginCallMark::fill(CallRecord& record) const {
  copy(record.kind, plugin_ ? kind_name(plugin_->kind()) : "");
  copy(record.name, plugin_ ? plugin_->descriptor->name : file_);
  copy(record.version, plugin_ ? plugin_->descriptor->version : "");
  copy(record.call, place_.call);
  copy(record.tensor, place_.tensor);
  record.step = place_.step;
  record.caller[0] = 0;
  if (outer_ && outer_->plugin_ && outer_->plugin_ != plugin_)
    std::snprintf(record.caller, sizeof(record.caller), "%s plugin %s %s, %s", kind_name(outer_->plugin_->kind()),
                  outer_->plugin_->descriptor->name, outer_->plugin_->descriptor->version, outer_->place_.call);
}

// A signal may end the process between any two of these lines; the record then shows no call.
void PluginCallMark::record() const {
  CallRecord& record = call_record();
  record.is_inside.store(0, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  fill(record);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  record.is_inside.store(1, std::memory_order_relaxed);
}

void PluginCallMark::put_back() const {
  const FloatEnvironment left = FloatEnvironment::now();
  environment_.restore();
  ++restored;
  try {
    warn_of_environment(plugin_ ? formatted("{} plugin {} {}", kind_name(plugin_->kind()), plugin_->name(), plugin_->version())
                                : formatted("plugin {}", printable(file_)),
                        place_.call, left);
  } catch (...) {  // out of memory for the message
  }
}

uint64_t restored_environments() { return restored; }

size_t PluginCallMark::write(char* into, size_t bytes) const {
  CallRecord record{};
  fill(record);
  return write_record(record, into, bytes);
}

HostEnvironmentScope::HostEnvironmentScope() : before_(FloatEnvironment::now()) {
  if (innermost && before_ != innermost->environment()) innermost->environment().restore();
}

HostEnvironmentScope::~HostEnvironmentScope() {
  if (FloatEnvironment::now() != before_) before_.restore();
}

}  // namespace gannet::plugin
