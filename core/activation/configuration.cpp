#include "activation/configuration.h"

#include <gannet/distributed.h>
#include <gannet/error.h>

#include <atomic>
#include <mutex>
#include <utility>

#include "base/format.h"

namespace gannet::activation {
namespace {

std::shared_ptr<const Configuration>& of_this_thread() {
  thread_local std::shared_ptr<const Configuration> configuration;
  return configuration;
}

struct ProgramConfiguration {
  std::mutex mutex;
  std::shared_ptr<const Configuration> configuration;
};
// Never destroyed: threads of backward passes may outlive main().
ProgramConfiguration& of_the_program() {
  static auto* const forever = new ProgramConfiguration;
  return *forever;
}

std::atomic<int64_t> waiting{0};
std::atomic<uint32_t> rank_of_engine{0};

}  // namespace

std::shared_ptr<const Configuration> in_force() {
  if (auto own = explicit_configuration()) return own;
  return of_this_thread();
}

ConfigurationScope::ConfigurationScope(std::shared_ptr<const Configuration> configuration)
    : before_(std::exchange(of_this_thread(), std::move(configuration))) {}
ConfigurationScope::~ConfigurationScope() { of_this_thread() = std::move(before_); }

void require_none_waiting() {
  if (const int64_t count = regions_waiting(); count > 0)
    throw Error(ErrorCode::kOrder,
                formatted("activation checkpointing was configured while {} region{} for backward", count,
                          count == 1 ? " waits" : "s wait"),
                "configure before the first forward, or after backward; a loss that gets none must have gone");
}

void set_explicit(std::shared_ptr<const Configuration> configuration) {
  require_none_waiting();
  const std::lock_guard lock(of_the_program().mutex);
  of_the_program().configuration = std::move(configuration);
}

std::shared_ptr<const Configuration> explicit_configuration() {
  const std::lock_guard lock(of_the_program().mutex);
  return of_the_program().configuration;
}

WaitingRegion::WaitingRegion() { ++waiting; }
WaitingRegion::~WaitingRegion() { --waiting; }
int64_t regions_waiting() { return waiting; }

uint32_t tensor_rank() {
  const auto own = explicit_configuration();
  return own && own->tensor_group ? own->tensor_group->rank() : rank_of_engine.load();
}
void note_tensor_rank(uint32_t rank) { rank_of_engine = rank; }

}  // namespace gannet::activation
