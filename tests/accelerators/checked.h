// The device `checked` as LibTorch knows it, and what it has counted.
#pragma once

#include <ATen/core/Dict.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <string>

namespace gannet::test {

inline const c10::Device kChecked(c10::DeviceType::PrivateUse1, 0);

// Since the plugin was opened, or reset_counters().
inline std::map<std::string, int64_t> counters() {
  const auto found = c10::Dispatcher::singleton().findSchemaOrThrow("gannet_checked::counters", "");
  std::map<std::string, int64_t> figures;
  for (const auto& entry : found.typed<c10::Dict<std::string, int64_t>()>().call()) figures[entry.key()] = entry.value();
  return figures;
}
inline void reset_counters() {
  c10::Dispatcher::singleton().findSchemaOrThrow("gannet_checked::reset", "").typed<void()>().call();
}

}  // namespace gannet::test
