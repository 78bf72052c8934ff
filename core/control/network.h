// Operating system calls for the rendezvous: they open listening sockets, test whether a server can
// be reached, and find this machine's address towards another machine and its identity.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace gannet::control {

// Owns a file descriptor.
class Socket {
 public:
  explicit Socket(int descriptor = -1) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();
  int get() const { return descriptor_; }
  int release();

 private:
  int descriptor_;
};

// Listens on all addresses of this machine. Throws Error(kUnavailable) with the port if another
// program is using it.
Socket listen_on(uint16_t port);

// The port of a listening socket, which is needed after listen_on(0) has taken any free port.
uint16_t port_of(const Socket& socket);

// Connects to host:port within `milliseconds`. On failure, returns an empty socket (get() < 0) and
// sets `reason`.
Socket connect_to(const std::string& host, uint16_t port, int milliseconds, std::string& reason);

// Tries once to reach host:port within `milliseconds`. Returns "" if a server answers, else the
// reason.
std::string try_to_reach(const std::string& host, uint16_t port, int milliseconds);

// This machine's source address for packets to `host`; "" if the host cannot be resolved or
// reached.
std::string address_towards(const std::string& host);

// Whether `host` is resolved and none of its addresses belongs to this machine.
bool is_elsewhere(const std::string& host);

bool is_loopback(const std::string& address);

// A string that is the same for all processes on one machine (and in one network namespace), and
// different elsewhere.
std::string machine_identity();

}  // namespace gannet::control
