// Finds rank 0 for processes that mpirun started on several machines, by exchanging addresses through mpirun
// itself: with PMIx (Open MPI, PRRTE) or PMI-1 (MPICH, Intel MPI).
#pragma once

#include <optional>
#include <string>

#include "control/environment.h"

namespace gannet::control {

/// Whether this process's launcher can pass strings between its processes: through PMIx, or through
/// PMI-1 unless an MPI library is loaded (its MPI_Init uses the same connection to the launcher).
bool can_exchange(const Variables& variables);
/// Returns rank 0's string on every process of the launcher; all of them must call it. `own`: the
/// string on rank 0, else nullopt. Later calls return the first result. Throws Error(kUnavailable).
std::string exchanged(const Variables& variables, const std::optional<std::string>& own);

/// "gpu03 10.0.0.3 172.17.0.1:29500": this machine's name, its IPv4 addresses except loopback, and the port.
std::string own_place(uint16_t port);
/// The address in `place` that this machine can reach: the first one on a network that this machine
/// is also on, else the first one, else the name.
std::string address_in(const std::string& place);
uint16_t port_in(const std::string& place);

/// Sets the address at which the ranks meet (Environment::exchanges). Rank 0 uses MASTER_PORT if it
/// is set, else a free port. Every rank must call it.
void find_rank_zero(const Variables& variables, Environment& environment);

}  // namespace gannet::control
