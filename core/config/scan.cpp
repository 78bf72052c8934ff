#include "config/scan.h"

#include <gannet/error.h>

#include <algorithm>
#include <cctype>

#include "base/format.h"
#include "base/utf8.h"

namespace gannet::config {
namespace {

bool any_of(char letter, std::string_view letters) { return letters.find(letter) != std::string_view::npos; }
bool is_space(char letter) { return letter == ' ' || letter == '\t' || letter == '\n' || letter == '\r'; }

}  // namespace

Scan::Scan(const std::string& text, std::string name) : original_(text), text_(text), name_(std::move(name)) {
  require_text();
  if (text_.starts_with("\xEF\xBB\xBF")) text_.replace(0, 3, "   ");  // the UTF-8 byte order mark, which some editors write

  char last = 0;          // the last character that is neither space nor comment; '"' after a string
  char before_comma = 0;  // the character before the last comma
  size_t comma = 0;
  for (size_t i = 0; i < text_.size();) {
    const char letter = text_[i];
    if (is_space(letter)) {
      ++i;
    } else if (letter == '#' || (letter == '/' && i + 1 < text_.size() && (text_[i + 1] == '/' || text_[i + 1] == '*'))) {
      i = blank_comment(i);
    } else if (letter == '"') {
      strings_.push_back(i);
      i = skip_string(i);
      last = '"';
    } else {
      if (letter == ':' && last == '"') keys_.push_back(strings_.back());
      if (letter == ',') {
        before_comma = last;
        comma = i;
      }
      // A trailing comma is allowed only after an element, so "[,]" is still an error.
      if ((letter == '}' || letter == ']') && last == ',' && !any_of(before_comma, "{[,:")) text_[comma] = ' ';
      last = letter;
      ++i;
    }
  }
}

void Scan::require_text() const {
  for (size_t i = 0; i < text_.size();) {
    const size_t length = utf8_length(text_, i);
    if (length == 0 || text_[i] == '\0') {
      constexpr char kHex[] = "0123456789abcdef";
      const auto byte = static_cast<unsigned char>(text_[i]);
      throw Error(ErrorCode::kConfig,
                  formatted("{}: not a text file: byte {} is 0x{}{}, which is not UTF-8 text", name_, i, kHex[byte >> 4],
                            kHex[byte & 15]),
                  "a config is JSON text in UTF-8; was another file meant?");
    }
    i += length;
  }
}

size_t Scan::blank_comment(size_t at) {
  const bool is_block = text_.compare(at, 2, "/*") == 0;
  size_t end = is_block ? text_.find("*/", at + 2) : text_.find('\n', at);
  if (is_block && end == std::string::npos)
    throw Error(ErrorCode::kConfig, formatted("{}: the comment that begins here is not closed", where(at)), "close it with */");
  end = is_block ? end + 2 : std::min(end, text_.size());
  for (size_t i = at; i < end; ++i)
    if (text_[i] != '\n' && text_[i] != '\r') text_[i] = ' ';
  return end;
}

size_t Scan::skip_string(size_t at) const {
  for (size_t i = at + 1; i < text_.size() && text_[i] != '\n'; ++i) {
    if (text_[i] == '\\')
      ++i;
    else if (text_[i] == '"')
      return i + 1;
  }
  throw Error(ErrorCode::kConfig, formatted("{}: the string that begins here is not closed on its line", where(at)),
              "close it with a double quote");
}

size_t Scan::token_start(size_t offset) const {
  if (offset >= text_.size()) return text_.size();
  const auto after = std::upper_bound(strings_.begin(), strings_.end(), offset);
  if (after != strings_.begin() && offset < skip_string(*(after - 1))) return *(after - 1);
  const auto in_word = [](char letter) { return std::isalnum(static_cast<unsigned char>(letter)) || any_of(letter, "_$.+-"); };
  size_t start = offset;
  while (start > 0 && in_word(text_[offset]) && in_word(text_[start - 1])) --start;
  return start;
}

Position Scan::position(size_t offset) const {
  // Positions are queried in ascending order, so counting resumes at the last answer, and even
  // long text is counted only once.
  if (offset < counted_) counted_ = 0, at_ = {1, 1};
  for (; counted_ < std::min(offset, original_.size()); ++counted_) {
    if (original_[counted_] == '\n')
      at_ = {at_.line + 1, 1};
    else if ((static_cast<unsigned char>(original_[counted_]) & 0xC0) != 0x80)
      ++at_.column;
    if (counted_ == 2 && original_.starts_with("\xEF\xBB\xBF")) at_ = {1, 1};  // the byte order mark is not a character
  }
  return at_;
}

std::string Scan::where(size_t offset) const {
  const Position at = position(offset);
  return formatted("{}:{}:{}", name_, at.line, at.column);
}

}  // namespace gannet::config
