// Byte messages between the ranks of a group, using c10d's send and receive.
#pragma once

#include <cstdint>
#include <memory>

#include "messages.h"

namespace gannet_gloo {

// Messages in the same lane between two ranks arrive in the order of the calls.
enum Lane { kRing = 1, kMessages = 2, kParts = 3 };

class Mail {
 public:
  virtual ~Mail() = default;
  virtual std::unique_ptr<Transfer> send(const void* from, uint64_t bytes, uint32_t to, Lane lane) = 0;
  virtual std::unique_ptr<Transfer> receive(void* to, uint64_t bytes, uint32_t from, Lane lane) = 0;

  // The same, but returning the transfer as a Message that Messages can wait for.
  Message sent(const void* from, uint64_t bytes, uint32_t to, Lane lane) {
    return {{to, true, lane}, send(from, bytes, to, lane)};
  }
  Message received(void* to, uint64_t bytes, uint32_t from, Lane lane) {
    return {{from, false, lane}, receive(to, bytes, from, lane)};
  }
};

}  // namespace gannet_gloo
