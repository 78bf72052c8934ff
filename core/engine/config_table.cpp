#include "engine/config_table.h"

#include <gannet/log.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/format.h"
#include "config/document.h"
#include "engine/impl.h"
#include "engine/used_plugins.h"

namespace gannet {
namespace {

// Explains how a default makes training differ from a plain LibTorch loop; null if it does not, or
// if the section is off.
const char* beyond_plain(const config::Settings& settings, const std::string& path) {
  if (path == "/gradient_clipping") return "a plain LibTorch loop does not clip: 0 switches it off";
  if (path == "/fp16/loss_scale" && settings.fp16.enabled) return "0: dynamic, a step whose gradients overflow is skipped";
  if (path == "/bf16/check_grad_overflow" && settings.bf16.enabled) return "a step whose gradients are not finite is skipped";
  return nullptr;
}

std::string table_of(const config::ResolvedConfig& resolved, bool with_defaults) {
  std::string table;
  for (const auto& entry : resolved.effective) {
    const bool is_default = entry.origin == "default";
    const char* const beyond = is_default ? beyond_plain(resolved.settings, entry.path) : nullptr;
    if (with_defaults || !is_default || beyond)
      table += formatted("{} = {}   # {}{}\n", config::dotted(entry.path), entry.value.to_json(), entry.origin,
                         beyond ? formatted(" ({})", beyond) : "");
  }
  return table;
}

}  // namespace

void log_config(const EngineBase::Impl& impl) {
  const bool is_whole = impl.settings().dump_state;
  std::string table = table_of(impl.resolved, is_whole);
  if (!table.empty()) table.pop_back();  // the log ends the line
  static std::mutex mutex;
  static std::string& last = *new std::string;
  std::lock_guard lock(mutex);
  if (std::exchange(last, table) == table) return;
  log_info(is_whole ? formatted("effective config:\n{}", table)
                    : formatted("config (all else is at its default, which dump_state shows too):\n{}", table));
}

std::string EngineBase::plugin_table() const {
  std::string table;
  for (const auto* plugin : used_plugins(*impl_)) {
    auto column = [](std::string text, size_t width) {
      return text.size() < width ? text + std::string(width - text.size(), ' ') : formatted("{} ", text);
    };
    table += formatted("{}{}{}{}\n", column(plugin::kind_name(plugin->kind()), 12), column(plugin->name(), 16),
                       column(plugin->version(), 8), plugin->file);
  }
  return table;
}

std::string EngineBase::config_table() const { return table_of(impl_->resolved, /*with_defaults=*/true); }

Value EngineBase::config_value(const std::string& path) const {
  std::string pointer = "/" + path;
  std::replace(pointer.begin(), pointer.end(), '.', '/');
  for (const auto& entry : impl_->resolved.effective)
    if (entry.path == pointer) return entry.value;
  return {};
}

}  // namespace gannet
