// The state that an engine keeps between saves.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "interfaces/host_group.h"
#include "state/checkpoint_writer.h"

namespace gannet {

struct SaveState {
  std::set<std::string> loaded_folders;      // the folders from which this run resumed
  std::unique_ptr<HostGroup> group;          // for background writes, which communicate while the engine's thread does
  std::unique_ptr<CheckpointWriter> writer;  // null: nothing was saved. Destroyed first; its destructor waits for the write
};

}  // namespace gannet
