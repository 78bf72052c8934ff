#include <gannet/distributed.h>
#include <gannet/error.h>
#include <gannet/world_size.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "base/format.h"
#include "control/environment.h"
#include "control/rendezvous.h"
#include "control/world.h"

namespace gannet {
namespace {

// The world that init_distributed made. It is never destroyed at exit, because its service threads
// outlive static objects.
struct ProcessWorld {
  std::mutex mutex;
  std::shared_ptr<ProcessGroup> group;
  uint32_t generation = 0;
};

ProcessWorld& the_world() {
  static ProcessWorld& instance = *new ProcessWorld;
  return instance;
}

}  // namespace

ProcessGroup::ProcessGroup(std::shared_ptr<control::World> world, std::unique_ptr<control::Links> links)
    : world_(std::move(world)), links_(std::move(links)) {}

ProcessGroup::~ProcessGroup() = default;

control::Links& ProcessGroup::links() const { return links_ ? *links_ : world_->links(); }

uint32_t ProcessGroup::rank() const { return links().host.rank(); }
uint32_t ProcessGroup::size() const { return links().host.size(); }
uint32_t ProcessGroup::local_rank() const { return world_->local_rank(); }
std::string ProcessGroup::discovered() const { return world_->discovered(); }
void ProcessGroup::barrier() {
  auto call = world_->enter(links().host, "barrier");
  links().host.barrier();
}

std::vector<std::string> ProcessGroup::gather(const std::string& bytes) {
  auto call = world_->enter(links().host, "gather");
  return links().host.gather_texts(bytes);
}

void ProcessGroup::report_failure(const std::string& call, const std::string& error) noexcept {
  constexpr size_t kLongest = 2'000;
  try {
    const size_t stack = error.find("\nException raised from");  // LibTorch's exceptions append this to their message
    if (control::Watch* watch = world_->watch())
      watch->abandon(links().host, formatted("{} by an error: {}", call, error.substr(0, std::min(stack, kLongest))));
  } catch (const std::exception&) {  // the original error takes precedence
  }
}

std::shared_ptr<ProcessGroup> ProcessGroup::subset(const std::vector<uint32_t>& ranks) {
  if (ranks.empty()) throw Error(ErrorCode::kArgument, "a subset of ranks is empty", "name at least one rank");
  const auto& all = links().host.ranks();
  std::vector<uint32_t> world_ranks;
  for (const uint32_t rank : ranks) {
    if (rank >= all.size())
      throw Error(ErrorCode::kArgument, formatted("a subset names rank {} of a group of {}", rank, all.size()),
                  "ranks of a subset are those of the group that it is taken from, from 0");
    if (std::find(world_ranks.begin(), world_ranks.end(), all[rank]) != world_ranks.end())
      throw Error(ErrorCode::kArgument, formatted("a subset names rank {} twice", rank), "name each rank once");
    world_ranks.push_back(all[rank]);
  }
  // All ranks of this group count its subsets in the same order, so the name is the same on all of
  // them and unique.
  const std::string name = formatted("{}/{}", name_, subsets_++);
  if (std::find(world_ranks.begin(), world_ranks.end(), world_->rank()) == world_ranks.end()) return nullptr;
  auto made = std::make_shared<ProcessGroup>(world_, std::make_unique<control::Links>(*world_, world_ranks, name));
  made->name_ = name;
  return made;
}

std::shared_ptr<ProcessGroup> init_distributed(const DistributedOptions& options) {
  ProcessWorld& the = the_world();
  std::lock_guard lock(the.mutex);
  if (the.group) {
    the.group->world()->require_same(options);
    return the.group;
  }
  auto world = std::make_shared<control::World>(options, the.generation++);
  the.group = std::make_shared<ProcessGroup>(world, nullptr);
  // A process that ends without destroy_distributed says goodbye to the others, so that they do not
  // mistake its end for a crash.
  static const int registered = std::atexit([] {
    const std::unique_lock lock(the_world().mutex, std::try_to_lock);
    if (lock && the_world().group) the_world().group->world()->goodbye();
  });
  static_cast<void>(registered);
  return the.group;
}

bool is_distributed_initialized() {
  std::lock_guard lock(the_world().mutex);
  return the_world().group != nullptr;
}

int64_t expected_world_size() {
  if (is_distributed_initialized()) return init_distributed()->size();
  return control::discover(control::variables_of_this_process(), {}).world_size;
}

void destroy_distributed() {
  std::lock_guard lock(the_world().mutex);
  if (!the_world().group) return;
  the_world().group->world()->leave();
  the_world().group.reset();
}

}  // namespace gannet
