// Collectives made of messages: SEND and RECV themselves, and what c10d's Gloo has no collective for.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mail.h"

namespace gannet_gloo {

// The messages of a SEND, a RECV, or an all_gather of parts that differ in size; the copy of this rank's own part is done.
std::vector<Message> messages_of(const Collective& collective, Mail& mail);

// A reduce-scatter whose parts go straight to their ranks: the same bytes on the wire as the ring's, this rank's part of every
// rank in memory at once, and one sum, in the order of the ranks, that is rounded once.
std::unique_ptr<Work> exchange_and_sum(const Collective& collective, const std::string& doing, Mail& mail, Messages& messages);

}  // namespace gannet_gloo
