// Collectives built from messages: SEND, RECV, and those that c10d's Gloo lacks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mail.h"

namespace gannet_gloo {

// Posts the messages of a SEND, a RECV, or an all_gather of parts of different sizes, and copies
// this rank's own part.
std::vector<Message> messages_of(const Collective& collective, Mail& mail);

// Starts a reduce-scatter that sends each part directly to its rank. It sends as many bytes as the
// ring, but holds all ranks' versions of this rank's part in memory at once, and computes one sum
// in the order of the ranks, rounded once.
std::unique_ptr<Work> exchange_and_sum(const Collective& collective, const std::string& doing, Mail& mail, Messages& messages);

}  // namespace gannet_gloo
