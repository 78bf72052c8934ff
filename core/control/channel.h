// Messages between the watches of two ranks: lists of strings over one TCP connection, never
// blocking.
//
//   Channel channel(connect_to(host, port, 5'000, reason));
//   channel.send({"enter", "world", "7", "step"});
//   for (const Message& message : channel.receive()) ...
#pragma once

#include <string>
#include <vector>

#include "control/network.h"

namespace gannet::control {

using Message = std::vector<std::string>;  // the first string is the message's kind

std::string encode(const Message& message);
// Removes the complete messages from the front of `bytes`. Throws Error(kCorrupt) on bytes that
// cannot be a message.
std::vector<Message> decode(std::string& bytes);

class Channel {
 public:
  // Makes the kernel probe the peer when it is silent, so that a vanished machine is noticed within
  // 10 s.
  explicit Channel(Socket socket);
  void send(const Message& message);  // data that the kernel does not accept now is sent by a later flush()
  void flush();
  std::vector<Message> receive();             // messages that have arrived, perhaps none
  bool is_closed() const { return closed_; }  // closed by the other side, or broken
  bool has_unsent() const { return !unsent_.empty(); }
  int descriptor() const { return socket_.get(); }

 private:
  Socket socket_;
  // unsent_: the bytes that the kernel has not yet accepted. received_: the beginning of an
  // incomplete message.
  std::string unsent_, received_;
  bool closed_ = false;
};

}  // namespace gannet::control
