// The library's calls for each collective.
#pragma once

#include <gannet/sdk_comm.hpp>

#include "communicator.h"

namespace gannet_nccl {

// Throws Failure(GANNET_UNSUPPORTED) for a reduction that the library does not have.
void require_supported(const gannet::sdk::Collective& c, const Library& library);

// Makes the collective's calls on the stream. `token`: memory of a barrier.
void issue(const gannet::sdk::Collective& c, const Communicator::Launch& launch, Stream stream, void* token);

}  // namespace gannet_nccl
