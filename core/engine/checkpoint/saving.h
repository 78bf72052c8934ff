// What an engine's saves hold between two of them.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "interfaces/host_group.h"
#include "state/checkpoint_writer.h"

namespace gannet {

struct Saving {
  std::set<std::string> loaded_folders;      // that this run resumed from
  std::unique_ptr<HostGroup> group;          // of writes in the background: beside what the engine's thread sends
  std::unique_ptr<CheckpointWriter> writer;  // null: nothing was saved. It dies first, and waits for its write
};

}  // namespace gannet
