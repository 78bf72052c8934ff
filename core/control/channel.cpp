#include "control/channel.h"

#include <fcntl.h>
#include <gannet/error.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

namespace gannet::control {
namespace {

// Messages hold only error messages and short names, so a longer one comes from another program
// that connected to this port.
constexpr uint32_t kMostBytes = 16 << 20;

// Appends the number in host byte order: all ranks of a job have the same endianness.
void append(std::string& bytes, uint32_t number) { bytes.append(reinterpret_cast<const char*>(&number), sizeof number); }

uint32_t number_at(const std::string& bytes, size_t position) {
  uint32_t number = 0;
  std::memcpy(&number, bytes.data() + position, sizeof number);
  return number;
}

void set(int descriptor, int level, int option, int value) { setsockopt(descriptor, level, option, &value, sizeof value); }

}  // namespace

// A message is the size of its body in bytes, then the body: each string preceded by its length.
std::string encode(const Message& message) {
  std::string body;
  for (const auto& text : message) {
    append(body, static_cast<uint32_t>(text.size()));
    body += text;
  }
  std::string bytes;
  append(bytes, static_cast<uint32_t>(body.size()));
  return bytes + body;
}

std::vector<Message> decode(std::string& bytes) {
  const auto refuse = [] { throw Error(ErrorCode::kCorrupt, "a message between the ranks' watches cannot be read"); };
  std::vector<Message> messages;
  size_t begin = 0;
  while (bytes.size() - begin >= sizeof(uint32_t)) {
    const uint32_t length = number_at(bytes, begin);
    if (length > kMostBytes) refuse();
    if (bytes.size() - begin - sizeof(uint32_t) < length) break;
    const size_t end = begin + sizeof(uint32_t) + length;
    Message& message = messages.emplace_back();
    for (size_t at = begin + sizeof(uint32_t); at < end;) {
      if (end - at < sizeof(uint32_t) || number_at(bytes, at) > end - at - sizeof(uint32_t)) refuse();
      const uint32_t size = number_at(bytes, at);
      message.push_back(bytes.substr(at + sizeof(uint32_t), size));
      at += sizeof(uint32_t) + size;
    }
    if (message.empty()) refuse();
    begin = end;
  }
  bytes.erase(0, begin);
  return messages;
}

Channel::Channel(Socket socket) : socket_(std::move(socket)) {
  const int descriptor = socket_.get();
  fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK);
  set(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  // After 2 s of silence the kernel probes 5 times, 1 s apart. TCP_USER_TIMEOUT, in ms, bounds how long sent data may stay
  // unacknowledged, which keepalive does not cover.
  set(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, 2);
  set(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(descriptor, IPPROTO_TCP, TCP_KEEPCNT, 5);
  set(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, 8'000);
}

void Channel::send(const Message& message) {
  unsent_ += encode(message);
  flush();
}

void Channel::flush() {
  while (!closed_ && !unsent_.empty()) {
    const ssize_t count = ::send(socket_.get(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0)
      unsent_.erase(0, static_cast<size_t>(count));
    else if (errno == EAGAIN || errno == EWOULDBLOCK)
      return;
    else if (errno != EINTR)
      break;  // broken: data that arrived earlier can still be read, and receive() reports the close
  }
  if (!unsent_.empty()) unsent_.clear();
}

std::vector<Message> Channel::receive() {
  std::array<char, 16384> buffer;
  while (!closed_) {
    const ssize_t count = ::recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (count > 0)
      received_.append(buffer.data(), static_cast<size_t>(count));
    else if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      break;
    else if (count == 0 || errno != EINTR)
      closed_ = true;
  }
  try {
    return decode(received_);
  } catch (const Error&) {
    closed_ = true;
    return {};
  }
}

}  // namespace gannet::control
