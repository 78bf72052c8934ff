// State that an engine keeps between two saves.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "interfaces/host_group.h"
#include "state/checkpoint_writer.h"

namespace gannet {

struct SaveState {
  std::set<std::string> loaded_folders;      // that this run resumed from
  std::unique_ptr<HostGroup> group;          // for background writes: they run beside what the engine's thread sends
  std::unique_ptr<CheckpointWriter> writer;  // null: nothing was saved. Destroyed first; its destructor waits for the write
};

}  // namespace gannet
