#include "kit/relay.h"

#include <mutex>
#include <utility>

#include "kit/check.h"
#include "kit/place.h"
#include "kit/relay_call.h"
#include "kit/relay_tables.h"

namespace gannet::kit {
namespace {

RelayOptions options;
ProcessScope scope = ProcessScope::kAll;
std::mutex& fault_mutex = *new std::mutex;
std::string &fault = *new std::string, &fault_place = *new std::string;

}  // namespace

ProcessScope relay_scope() { return scope; }

void keep_fault(const std::string& what) {
  const std::lock_guard lock(fault_mutex);
  if (!fault.empty()) return;
  fault = what;
  fault_place = text_of(place());
}

void throw_kept_fault() {
  const std::lock_guard lock(fault_mutex);
  if (!fault.empty()) throw CheckFailure(std::exchange(fault, ""), fault_place);
}

const RelayOptions& relay_options() { return options; }

RelayScope::RelayScope(const RelayOptions& wanted) { options = wanted; }
RelayScope::~RelayScope() { options = {}; }

const plugin::Plugin* relayed(const plugin::Plugin* plugin) {
  const auto kind = plugin->kind();
  if (kind == GANNET_KIND_ACCELERATOR) return plugin;  // called by many threads with separate state
  static plugin::Plugin copy;
  static gannet_descriptor descriptor;
  copy = *plugin;
  descriptor = *plugin->descriptor;
  scope = process_scope(kind);
  descriptor.api = kind == GANNET_KIND_OPTIMIZER   ? optimizer_table(*plugin)
                   : kind == GANNET_KIND_SCHEDULER ? scheduler_table(*plugin)
                   : kind == GANNET_KIND_OFFLOAD   ? offload_table(*plugin)
                                                   : comm_table(*plugin);
  copy.descriptor = &descriptor;
  return &copy;
}

}  // namespace gannet::kit
