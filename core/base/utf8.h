// UTF-8 as RFC 3629 defines it: without overlong forms, surrogates or characters above U+10FFFF.
#pragma once

#include <cstddef>
#include <string_view>

namespace gannet {

// The length in bytes of the character that begins at `at`; 0 if no valid character begins there.
inline size_t utf8_length(std::string_view text, size_t at = 0) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char lead = byte(0);
  const size_t length = lead < 0x80                   ? 1
                        : lead >= 0xC2 && lead < 0xE0 ? 2
                        : lead >= 0xE0 && lead < 0xF0 ? 3
                        : lead >= 0xF0 && lead < 0xF5 ? 4
                                                      : 0;
  if (length == 0 || length > text.size() - at) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  if (lead == 0xE0 && byte(1) < 0xA0) return 0;  // an overlong form
  if (lead == 0xF0 && byte(1) < 0x90) return 0;
  if (lead == 0xED && byte(1) >= 0xA0) return 0;  // a surrogate
  if (lead == 0xF4 && byte(1) >= 0x90) return 0;  // above U+10FFFF
  return length;
}

}  // namespace gannet
