#include "exchange.h"

#include <cstring>

namespace gannet_gloo {

std::vector<Message> messages_of(const Collective& c, Mail& mail) {
  std::vector<Message> messages;
  if (c.op == GANNET_SEND) {
    messages.push_back(mail.sent(c.send, c.bytes(), c.peer, kMessages));
  } else if (c.op == GANNET_RECV) {
    messages.push_back(mail.received(c.recv, c.bytes(), c.peer, kMessages));
  } else {
    for (uint32_t other = 0; other < c.size; ++other)  // receive every part directly into place
      if (other != c.rank && c.recv_count(other) > 0)
        messages.push_back(mail.received(c.recv_part(other), c.recv_count(other) * c.element_bytes(), other, kParts));
    for (uint32_t step = 1; step < c.size && c.count > 0; ++step)  // each rank starts with a different receiver
      messages.push_back(mail.sent(c.send, c.bytes(), (c.rank + step) % c.size, kParts));
    if (c.count > 0 && c.send != c.recv_part(c.rank)) std::memmove(c.recv_part(c.rank), c.send, c.bytes());
  }
  return messages;
}

std::unique_ptr<Work> exchange_and_sum(const Collective& c, const std::string& doing, Mail& mail, Messages& messages) {
  const auto scaled = std::make_shared<std::vector<char>>();
  Collective sent = c;
  if (c.first_factor() != 1.0) {
    const uint64_t all = c.send_offset(c.size);
    scaled->assign(static_cast<const char*>(c.send), static_cast<const char*>(c.send) + all * c.element_bytes());
    gannet::sdk::scale(scaled->data(), all, c.dtype, c.first_factor());
    sent.send = scaled->data();
  }
  const auto arrived = std::make_shared<std::vector<char>>(c.bytes() * c.size);  // ordered by rank; this rank's slot is unused
  std::vector<Message> parts;
  for (uint32_t other = 0; other < c.size; ++other)
    if (other != c.rank && c.count > 0)
      parts.push_back(mail.received(arrived->data() + other * c.bytes(), c.bytes(), other, kParts));
  for (uint32_t step = 1; step < c.size; ++step)
    if (const uint32_t other = (c.rank + step) % c.size; c.send_count(other) > 0)
      parts.push_back(mail.sent(sent.send_part(other), c.send_count(other) * c.element_bytes(), other, kParts));
  const char* own = sent.send_part(c.rank);
  return messages.watch(std::move(parts), doing, [c, own, scaled, arrived] {
    std::vector<const void*> of_ranks;
    for (uint32_t rank = 0; rank < c.size; ++rank) of_ranks.push_back(rank == c.rank ? own : arrived->data() + rank * c.bytes());
    gannet::sdk::reduce_parts(c.recv, of_ranks, c.count, c.dtype, c.reduce_op, c.sums_in_float(), c.final_factor());
  });
}

}  // namespace gannet_gloo
