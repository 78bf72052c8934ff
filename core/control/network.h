// The few things the rendezvous asks of the operating system: a listening socket, whether a server answers, which of this
// machine's addresses leads to another one, and what tells two machines apart.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace gannet::control {

// A file descriptor, closed at the end of its life.
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

// Listens on all addresses of this machine. Throws Error(kUnavailable) that names the port when another program has it.
Socket listen_on(uint16_t port);

// Which port a listening socket has: listen_on(0) takes any that is free.
uint16_t port_of(const Socket& socket);

// Connects to host:port within `milliseconds`; else an empty socket (get() < 0) and the reason.
Socket connect_to(const std::string& host, uint16_t port, int milliseconds, std::string& reason);

// Tries once to reach host:port for at most `milliseconds`. "" when a server answers, else why not.
std::string try_to_reach(const std::string& host, uint16_t port, int milliseconds);

// The address of this machine that packets to `host` would leave from; "" when the host cannot be resolved or reached.
std::string address_towards(const std::string& host);

bool is_loopback(const std::string& address);

// The same text for processes of one machine (and network namespace), another one elsewhere.
std::string machine_identity();

}  // namespace gannet::control
