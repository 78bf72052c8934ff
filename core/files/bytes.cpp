#include "files/bytes.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>

#include "base/format.h"

namespace gannet::files {

static_assert(std::endian::native == std::endian::little, "numbers are read as they lie");

void corrupt(const std::string& path, uint64_t offset, const std::string& what) {
  throw Error(ErrorCode::kCorrupt, formatted("{}: at byte {}: {}", path, offset, what),
              "the file is damaged, cut short, or not one of torch.save: copy or save it again");
}

std::string shown(std::string_view text) {
  constexpr size_t kMost = 80;
  std::string result = "'";
  for (const char letter : text.substr(0, kMost)) {
    const auto code = static_cast<unsigned char>(letter);
    char hex[8];
    if (code < 0x20 || code == 0x7f) std::snprintf(hex, sizeof(hex), "\\x%02x", code);
    if (code < 0x20 || code == 0x7f)
      result += hex;
    else
      result += letter;
  }
  return result + (text.size() > kMost ? "...'" : "'");
}

Cursor::Cursor(const Bytes& bytes, uint64_t begin, uint64_t end, uint64_t window)
    : bytes_(bytes), end_(end), window_begin_(begin) {
  window_.resize(std::min(window, end - begin));
}

void Cursor::fill(uint64_t count) {
  if (count <= filled_ - at_) return;
  const uint64_t kept = filled_ - at_;
  if (kept > 0) std::memmove(window_.data(), window_.data() + at_, kept);
  window_begin_ += at_;
  at_ = 0;
  filled_ = kept;
  // Callers limit `count` to left(), so a forged length allocates at most the size of the file.
  if (count > window_.size()) window_.resize(count);
  const uint64_t more = std::min<uint64_t>(window_.size() - filled_, end_ - window_begin_ - filled_);
  bytes_.read(window_.data() + filled_, more, window_begin_ + filled_);
  filled_ += more;
}

void Cursor::need(uint64_t count, const char* what) const {
  if (count > left()) corrupt(formatted("{} of {} bytes begins here, and {} bytes are left", what, count, left()));
}

std::string_view Cursor::take(uint64_t count, const char* what) {
  need(count, what);
  fill(count);
  const std::string_view taken(window_.data() + at_, count);
  at_ += count;
  return taken;
}

void Cursor::skip(uint64_t count, const char* what) {
  need(count, what);
  if (count <= filled_ - at_) {
    at_ += count;
    return;
  }
  window_begin_ += at_ + count;
  at_ = filled_ = 0;
}

std::string Cursor::text(uint64_t count, const char* what) {
  need(count, what);
  std::string text;
  text.reserve(count);
  while (text.size() < count) text += take(std::min<uint64_t>(count - text.size(), window_.size()), what);
  return text;
}

std::string_view Cursor::line(const char* what) {
  uint64_t seen = 0;
  while (true) {
    const void* found = filled_ - at_ > seen ? std::memchr(window_.data() + at_ + seen, '\n', filled_ - at_ - seen) : nullptr;
    if (found) {
      const uint64_t length = static_cast<const char*>(found) - (window_.data() + at_);
      const std::string_view taken(window_.data() + at_, length);
      at_ += length + 1;
      return taken;
    }
    seen = filled_ - at_;
    if (seen == left()) corrupt(formatted("{} begins here and has no end", what));
    // Doubles the window, so that each byte of a long line is copied O(1) times on average.
    fill(std::min(left(), std::max(seen + 1, 2 * seen)));
  }
}

}  // namespace gannet::files
