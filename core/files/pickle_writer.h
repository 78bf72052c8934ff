// Makes the pickle of a dict of tensors, in protocol 2, as torch.save writes it.
#pragma once

#include <string>
#include <vector>

#include "files/pt_writer.h"

namespace gannet::files {

// Storages are named "0", "1" ... in the order of the entries that are not same_as another.
std::string pickle_of(const std::vector<PtEntry>& entries);

}  // namespace gannet::files
