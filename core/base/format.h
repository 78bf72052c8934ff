// Formats text with values, in fmt's syntax: {} for each value, {:.3f} with a format, {{ for a
// brace.
//
//   throw Error(ErrorCode::kArgument, formatted("{} is {}, but there are {} ranks", key, value, ranks));
//
// The number of placeholders is checked at compile time. Only format.cpp includes fmt: its headers
// are long, and LibTorch's include folder contains another version of them.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace gannet {

// A number, a boolean, a character or a string. Strings are referenced, not owned.
class FormatArgument {
 public:
  enum class Kind : uint8_t { kSigned, kUnsigned, kReal, kBoolean, kLetter, kText };

  FormatArgument(bool value) : kind(Kind::kBoolean), is_true(value) {}
  FormatArgument(char value) : kind(Kind::kLetter), letter(value) {}
  FormatArgument(std::signed_integral auto value) : kind(Kind::kSigned), integer(value) {}
  FormatArgument(std::unsigned_integral auto value) : kind(Kind::kUnsigned), natural(value) {}
  FormatArgument(std::floating_point auto value) : kind(Kind::kReal), real(static_cast<double>(value)) {}
  FormatArgument(std::string_view value) : kind(Kind::kText), text(value) {}
  FormatArgument(const std::string& value) : kind(Kind::kText), text(value) {}
  FormatArgument(const char* value) : kind(Kind::kText), text(value) {}

  Kind kind;
  union {
    int64_t integer;
    uint64_t natural;
    double real;
    bool is_true;
    char letter;
    std::string_view text;
  };
};

// A pattern with `count` placeholders.
template <size_t count>
class Pattern {
 public:
  consteval Pattern(const char* text) : text_(text) {
    size_t places = 0;
    for (size_t i = 0; i < text_.size(); ++i) {
      if (text_[i] != '{' && text_[i] != '}') continue;
      if (i + 1 < text_.size() && text_[i + 1] == text_[i])
        ++i;  // {{ or }} is an escaped brace
      else if (text_[i] == '{')
        ++places;
    }
    if (places != count) throw "the pattern has more or fewer places than there are values";  // a compile error
  }
  std::string_view text() const { return text_; }

 private:
  std::string_view text_;
};

std::string format_all(std::string_view pattern, std::span<const FormatArgument> values);

template <class... Values>
std::string formatted(std::type_identity_t<Pattern<sizeof...(Values)>> pattern, const Values&... values) {
  const FormatArgument all[] = {FormatArgument(values)...};
  return format_all(pattern.text(), all);
}

}  // namespace gannet
