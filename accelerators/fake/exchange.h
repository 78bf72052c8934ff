// Collectives as messages between processes: what each rank sends and receives, and what it computes
// of it.
#pragma once

#include <functional>
#include <vector>

#include "mailboxes.h"

namespace gannet::accelerators {

// The messages of one or several collectives, and the work to do on this rank once they have
// arrived. The plan is built when the collectives begin to run, because building it reads the
// buffers.
struct ExchangePlan {
  std::vector<Mailboxes::OutgoingMessage> outs;
  std::vector<Mailboxes::IncomingMessage> ins;
  std::function<void()> then = [] {};
};

// Holds copies of the count lists, which the caller may change once the call has returned.
struct OwnedCollective {
  explicit OwnedCollective(const sdk::Collective& given) : collective(given) {
    if (given.send_counts) send_counts.assign(given.send_counts, given.send_counts + given.size);
    if (given.recv_counts) recv_counts.assign(given.recv_counts, given.recv_counts + given.size);
  }
  sdk::Collective get() const {
    sdk::Collective c = collective;
    c.send_counts = send_counts.empty() ? nullptr : send_counts.data();
    c.recv_counts = recv_counts.empty() ? nullptr : recv_counts.data();
    return c;
  }
  sdk::Collective collective;
  std::vector<uint64_t> send_counts, recv_counts;
};

// Adds a collective of several ranks to the plan.
void add(const sdk::Collective& c, ExchangePlan& plan);

}  // namespace gannet::accelerators
