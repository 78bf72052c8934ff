// Prepares text for the JSON parser: comments and trailing commas become blanks, and every byte
// keeps its position.
//
//   Scan scan("{\"a\": 1, // one\n}", "ds_config.json");
//   scan.text();            // "{\"a\": 1        \n}"
//   scan.key_position(0);   // 1: the offset of the first key
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace gannet::config {

struct Position {
  int line = 0;    // 1-based
  int column = 0;  // 1-based, in characters (not bytes)
};

class Scan {
 public:
  // Throws Error(kConfig) on an unclosed comment or string, and on text that is not UTF-8. `name`
  // is the prefix of the message.
  Scan(const std::string& text, std::string name);

  const std::string& text() const { return text_; }
  // The byte offset of the n-th key of the text (a string followed by a colon), or text().size() if
  // there is no such key.
  size_t key_position(size_t n) const { return n < keys_.size() ? keys_[n] : text_.size(); }
  // The byte offset at which the token that covers `offset` starts.
  size_t token_start(size_t offset) const;
  Position position(size_t offset) const;
  // Returns "ds_config.json:3:5".
  std::string where(size_t offset) const;

 private:
  void require_text() const;
  size_t blank_comment(size_t at);
  size_t skip_string(size_t at) const;  // returns the offset after the closing quote

  // original_ and text_ have the same length, so offsets are valid in both.
  std::string original_, text_, name_;
  std::vector<size_t> strings_, keys_;  // offsets of opening quotes, ascending
  mutable size_t counted_ = 0;          // position() has counted up to here; at_ is its position
  mutable Position at_{1, 1};
};

}  // namespace gannet::config
