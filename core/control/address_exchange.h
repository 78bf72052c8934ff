// How the processes that mpirun started on several machines learn where rank 0 is: through mpirun itself, by
// PMIx (Open MPI, PRRTE) or PMI-1 (MPICH, Intel MPI).
#pragma once

#include <optional>
#include <string>

#include "control/environment.h"

namespace gannet::control {

/// Whether the launcher of this process passes texts between its processes. Not in a program with
/// MPICH's library, whose own MPI_Init talks to the launcher over the same connection.
bool can_exchange(const Variables& variables);
/// The text of rank 0, on every process of the launcher, which all call it. `own`: of rank 0; nullopt
/// elsewhere. A second call in a process returns the first one's text. Throws Error(kUnavailable).
std::string exchanged(const Variables& variables, const std::optional<std::string>& own);

/// "gpu03 10.0.0.3 172.17.0.1": this machine's name and its addresses except the loopback, and ":port".
std::string own_place(uint16_t port);
/// The address in a place that this machine can use: the first one of a network that this machine is in,
/// else the first one, else the name.
std::string address_in(const std::string& place);
uint16_t port_in(const std::string& place);

/// Sets the address at which the ranks meet (Environment::exchanges). Rank 0 takes MASTER_PORT if it is set,
/// else a free port. Every rank calls it.
void find_rank_zero(const Variables& variables, Environment& environment);

}  // namespace gannet::control
