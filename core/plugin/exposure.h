// Who else may change what a path leads to: the permissions of a file and of every folder on the way to it.
//
//   const std::string reason = exposure("/shared/plugins/lion.so");   // "the folder /shared may be written by every user (mode
//   0777)"
#pragma once

#include <string>

namespace gannet::plugin {

// The first of them that every user of the machine may write, as a sentence; "" where there is none. A sticky folder (/tmp) is
// none: nobody replaces another user's file in it. Symbolic links are followed, and the folders on their way are judged too.
// What cannot be looked at is not judged: opening it fails with a better sentence.
std::string exposure(const std::string& path);

}  // namespace gannet::plugin
