// Each gannet_collective as non-blocking MPI operations.
#pragma once

#include <functional>
#include <gannet/sdk_comm.hpp>

#include "runtime.h"

namespace gannet_mpi {

struct Operation {
  std::function<Requests()> issue;  // on the thread that calls MPI
  std::function<void()> then;       // when the requests are complete; may be empty
};

// Buffers of the collective must stay until the operation is over. `comm`: the group's communicator.
Operation operation_of(const gannet::sdk::Collective& collective, MPI_Comm comm);

}  // namespace gannet_mpi
