// Checks whether other users may change a file, based on the permissions of the file and of every
// folder on its path.
//
//   const std::string reason = exposure("/shared/plugins/lion.so");
//   // "the folder /shared may be written by every user (mode 0777)"
#pragma once

#include <string>

namespace gannet::plugin {

// Names the first folder on the path, or the file, that every user of the machine may write to; ""
// if there is none. A sticky folder (/tmp) does not count, since no user can replace another user's
// file in it. Symbolic links are followed, and the folders on their paths are checked as well. A
// path that cannot be examined counts as safe: opening it fails with a better message.
std::string exposure(const std::string& path);

}  // namespace gannet::plugin
