/// Checks a folder that a run will write into, before the run begins.
///
///   gannet::check_folder("run1", 12 * parameters);   // weights and two optimizer states in fp32
///
/// A mistyped path or a full disk is then an error at the start, not at the first checkpoint hours
/// later.
#pragma once

#include <cstdint>
#include <string>

namespace gannet {

/// Creates the folder if it is missing, and creates and removes a file there; every rank may call
/// it. Throws an Error(kIo) explaining why the folder or a file in it cannot be created, or that
/// fewer than `bytes` are free on its disk.
void check_folder(const std::string& folder, uint64_t bytes = 0);

}  // namespace gannet
