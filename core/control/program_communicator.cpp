#include "control/program_communicator.h"

#include <gannet/error.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>

#include "base/format.h"
#include "control/address_exchange.h"
#include "control/network.h"
#include "interfaces/call.h"

namespace gannet::control {

const gannet_communicator_extension* communicator_extension(const plugin::Plugin& comm) {
  for (const gannet_extension* each = comm.descriptor->extensions; each; each = each->next)
    if (each->type == GANNET_EXTENSION_COMMUNICATOR) return reinterpret_cast<const gannet_communicator_extension*>(each);
  return nullptr;
}

Environment environment_of(const plugin::Plugin& comm, const void* handle, std::chrono::milliseconds timeout,
                           uint32_t generation) {
  const gannet_communicator_extension* const communicator = communicator_extension(comm);
  if (!communicator)
    throw Error(ErrorCode::kUnsupported,
                formatted("init_distributed was given a communicator, and comm plugin '{}' takes none", comm.name()),
                "name the Comm 'mpi', or leave it \"auto\"");
  Environment found;
  interfaces::call(comm, {"describe"}, communicator->describe, handle, &found.rank, &found.world_size);
  found.discovered = "the program's communicator";
  if (found.world_size == 1) return found;
  // Rank 0's place, and its process and world, which name the job.
  std::array<char, 2048> text{};
  if (found.rank == 0) {
    const std::string place = own_place(port_of(listen_on(0)));  // not MASTER_PORT: several worlds may share a machine
    std::snprintf(text.data(), text.size(), "%s\n%s, process %d, world %u", place.c_str(), place.c_str(),
                  static_cast<int>(::getpid()), static_cast<unsigned>(generation));
  }
  interfaces::call(comm, {"broadcast"}, communicator->broadcast, handle, static_cast<void*>(text.data()), uint64_t{text.size()},
                   static_cast<uint64_t>(timeout.count()));
  const std::string told = text.data();
  const size_t end = told.find('\n');
  const std::string place = told.substr(0, end);
  found.master_addr = address_in(place);
  found.master_port = port_in(place);
  found.job = told.substr(end + 1);
  return found;
}

}  // namespace gannet::control
