#include "launch/frames.h"

#include <gannet/error.h>

#include <cerrno>
#include <cstdlib>

#include "base/format.h"
#include "base/text.h"

namespace gannet::launch {
namespace {
constexpr size_t kHeader = 5;
constexpr uint32_t kMostBody = 64u << 20;  // exceeds any argument list; bytes with a larger length are not a frame
constexpr std::string_view kKinds = "pgsfrn12txbe";
}  // namespace

std::string framed(FrameKind kind, std::string_view body) {
  std::string frame(1, static_cast<char>(kind));
  for (int shift = 0; shift < 32; shift += 8) frame += static_cast<char>(body.size() >> shift & 255);
  return frame.append(body);
}

std::optional<Frame> FrameReader::next() {
  if (!foreign_.empty()) return std::nullopt;
  if (!has_greeted_) {
    const size_t size = std::min(bytes_.size(), kGreeting.size());
    if (std::string_view(bytes_).substr(0, size) != kGreeting.substr(0, size)) {
      foreign_ = bytes_;
      return std::nullopt;
    }
    if (size < kGreeting.size()) return std::nullopt;
    has_greeted_ = true;
    bytes_.erase(0, size);
  }
  if (bytes_.size() < kHeader) return std::nullopt;
  uint32_t length = 0;
  for (size_t i = 0; i < 4; ++i) length |= static_cast<uint32_t>(static_cast<unsigned char>(bytes_[1 + i])) << 8 * i;
  if (kKinds.find(bytes_[0]) == std::string_view::npos || length > kMostBody) {
    foreign_ = bytes_;
    return std::nullopt;
  }
  if (bytes_.size() < kHeader + length) return std::nullopt;
  Frame frame{static_cast<FrameKind>(bytes_[0]), bytes_.substr(kHeader, length)};
  bytes_.erase(0, kHeader + length);
  return frame;
}

std::string packed(const std::vector<std::string>& texts) {
  std::string body;
  for (const std::string& text : texts) body.append(text).push_back('\0');
  return body;
}

std::vector<std::string> unpacked(std::string_view body) {
  std::vector<std::string> texts;
  while (!body.empty()) {
    const size_t end = std::min(body.find('\0'), body.size());
    texts.emplace_back(body.substr(0, end));
    body.remove_prefix(std::min(end + 1, body.size()));
  }
  return texts;
}

const std::string& Unpacker::text() {
  if (next_ == texts_.size()) throw Error(ErrorCode::kCorrupt, "a message between two gannet run ends too early");
  return texts_[next_++];
}

int64_t Unpacker::number() {
  const std::string& digits = text();
  char* end = nullptr;
  errno = 0;
  const int64_t value = std::strtoll(digits.c_str(), &end, 10);
  if (digits.empty() || *end != '\0' || errno != 0)
    throw Error(ErrorCode::kCorrupt, formatted("a message between two gannet run has '{}' for a number", printable(digits)));
  return value;
}

std::vector<std::string> Unpacker::texts() {
  std::vector<std::string> result;
  for (int64_t left = number(); left > 0; --left) result.push_back(text());
  return result;
}

}  // namespace gannet::launch
