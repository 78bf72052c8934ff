#include "control/network.h"

#include <arpa/inet.h>
#include <gannet/error.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <fstream>
#include <memory>
#include <thread>
#include <utility>

#include "base/format.h"

namespace gannet::control {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const std::string& host, uint16_t port, int type, std::string& reason) {
  addrinfo hints{};
  hints.ai_socktype = type;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (code != 0) reason = formatted("the name '{}' cannot be resolved: {}", host, gai_strerror(code));
  return Addresses(code == 0 ? found : nullptr, &freeaddrinfo);
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}
Socket::~Socket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}
int Socket::release() { return std::exchange(descriptor_, -1); }

Socket listen_on(uint16_t port) {
  // One IPv6 socket also accepts IPv4; without IPv6 in the kernel, use plain IPv4.
  for (const int family : {AF_INET6, AF_INET}) {
    Socket socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (socket.get() < 0) continue;
    const int on = 1, off = 0;
    // Lets a restarted rank 0 listen on its port while connections of the previous run are still in
    // TIME_WAIT.
    setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in6 v6{};
    sockaddr_in v4{};
    if (family == AF_INET6) {
      setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
      v6.sin6_family = AF_INET6;
      v6.sin6_port = htons(port);
      v6.sin6_addr = in6addr_any;
    } else {
      v4.sin_family = AF_INET;
      v4.sin_port = htons(port);
      v4.sin_addr.s_addr = htonl(INADDR_ANY);
    }
    const auto* address = family == AF_INET6 ? reinterpret_cast<const sockaddr*>(&v6) : reinterpret_cast<const sockaddr*>(&v4);
    const socklen_t length = family == AF_INET6 ? sizeof v6 : sizeof v4;
    if (::bind(socket.get(), address, length) == 0 && ::listen(socket.get(), SOMAXCONN) == 0) return socket;
    if (family == AF_INET6 && (errno == EADDRNOTAVAIL || errno == EAFNOSUPPORT)) continue;
    const int reason = errno;
    const std::string name = formatted("port {}", port);
    if (reason == EADDRINUSE)
      throw Error(
          ErrorCode::kUnavailable,
          formatted("{} (MASTER_PORT) is in use by another program on this machine, so rank 0 cannot serve the rendezvous there",
                    name),
          "choose another port (--master_port of `gannet run`, or MASTER_PORT on every rank); `ss -ltnp` shows who has it");
    if (reason == EACCES)
      throw Error(ErrorCode::kUnavailable, formatted("{} (MASTER_PORT) may not be opened by this user", name),
                  "choose a port above 1023");
    throw Error(ErrorCode::kUnavailable, formatted("rank 0 cannot listen on {}: {}", name, std::strerror(reason)));
  }
  throw Error(ErrorCode::kUnavailable, std::string("rank 0 cannot open a socket: ") + std::strerror(errno));
}

uint16_t port_of(const Socket& socket) {
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &length) != 0) return 0;
  return ntohs(own.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&own)->sin6_port
                                         : reinterpret_cast<const sockaddr_in*>(&own)->sin_port);
}

Socket connect_to(const std::string& host, uint16_t port, int milliseconds, std::string& reason) {
  const Addresses addresses = resolve(host, port, SOCK_STREAM, reason);
  for (const addrinfo* at = addresses.get(); at; at = at->ai_next) {
    Socket socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket.get() < 0) continue;
    int failure = ::connect(socket.get(), at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
    if (failure == EINPROGRESS) {
      // A pending connect reports its outcome in SO_ERROR once the socket is writable.
      pollfd waiting{socket.get(), POLLOUT, 0};
      socklen_t length = sizeof failure;
      if (::poll(&waiting, 1, milliseconds) <= 0)
        failure = ETIMEDOUT;
      else
        getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &failure, &length);
    }
    if (failure == 0) return socket;
    reason = std::strerror(failure);
  }
  if (reason.empty()) reason = "no address";
  return Socket();
}

std::string try_to_reach(const std::string& host, uint16_t port, int milliseconds) {
  std::string reason;
  return connect_to(host, port, milliseconds, reason).get() >= 0 ? "" : reason;
}

std::string address_towards(const std::string& host) {
  std::string reason;
  // Port 9 is discard; any port would do.
  const Addresses addresses = resolve(host, 9, SOCK_DGRAM, reason);
  for (const addrinfo* at = addresses.get(); at; at = at->ai_next) {
    // Connecting a datagram socket sends nothing: it only consults the routing table.
    Socket socket(::socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (socket.get() < 0 || ::connect(socket.get(), at->ai_addr, at->ai_addrlen) != 0) continue;
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    std::array<char, NI_MAXHOST> text{};
    if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &length) == 0 &&
        getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0)
      return text.data();
  }
  return "";
}

bool is_elsewhere(const std::string& host) {
  std::string reason;
  const Addresses addresses = resolve(host, 0, SOCK_DGRAM, reason);
  for (const addrinfo* at = addresses.get(); at; at = at->ai_next) {
    // Only an address of this machine can be bound; port 0 selects any free port.
    const Socket socket(::socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (socket.get() >= 0 && ::bind(socket.get(), at->ai_addr, at->ai_addrlen) == 0) return false;
  }
  return addresses != nullptr;
}

bool is_loopback(const std::string& address) { return address.rfind("127.", 0) == 0 || address == "::1"; }

std::string machine_identity() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  // Two network namespaces on one machine count as two machines, because they do not share a
  // loopback interface.
  std::array<char, 64> space{};
  if (readlink("/proc/self/ns/net", space.data(), space.size() - 1) < 0) space[0] = 0;
  return formatted("{} {} {}", name.data(), boot, space.data());
}

}  // namespace gannet::control
