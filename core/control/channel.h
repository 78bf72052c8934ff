// Messages between the watches of two ranks: lists of texts over one TCP connection, sent and received without ever blocking.
//
//   Channel channel(connect_to(host, port, 5'000, reason));
//   channel.send({"enter", "world", "7", "step"});
//   for (const Message& message : channel.receive()) ...
#pragma once

#include <string>
#include <vector>

#include "control/network.h"

namespace gannet::control {

using Message = std::vector<std::string>;  // the first text is its kind

std::string encode(const Message& message);
// Takes the whole messages off the front of `bytes`. Throws Error(kCorrupt) on what cannot be one.
std::vector<Message> decode(std::string& bytes);

class Channel {
 public:
  // The kernel probes a silent peer from here on: a machine that vanished is noticed within 10 s.
  explicit Channel(Socket socket);
  void send(const Message& message);  // what the kernel does not take now, flush() sends later
  void flush();
  std::vector<Message> receive();             // what has arrived, [] when nothing has
  bool is_closed() const { return closed_; }  // by the other side, or broken
  bool has_unsent() const { return !unsent_.empty(); }
  int descriptor() const { return socket_.get(); }

 private:
  Socket socket_;
  // unsent_: bytes that the kernel did not take yet. received_: the beginning of a message whose rest has not arrived.
  std::string unsent_, received_;
  bool closed_ = false;
};

}  // namespace gannet::control
