#include "files/pickle_constants.h"

#include <bit>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "base/format.h"
#include "files/pickle_text.h"

namespace gannet::files {

PickleObject* PickleConstants::read(unsigned char instruction) {
  // Handles N NONE, 0x88 NEWTRUE, 0x89 NEWFALSE, I INT, L LONG, J BININT, K BININT1, M BININT2,
  // 0x8a LONG1, 0x8b LONG4, F FLOAT, G BINFLOAT, S STRING, V UNICODE, T BINSTRING, U
  // SHORT_BINSTRING, 0x8c SHORT_BINUNICODE, X BINUNICODE, 0x8d BINUNICODE8, B BINBYTES, C
  // SHORT_BINBYTES, 0x8e BINBYTES8, 0x96 BYTEARRAY8.
  switch (instruction) {
    case 'N':
      return make_.none();
    case 0x88:
      return make_.boolean(true);
    case 0x89:
      return make_.boolean(false);
    case 'I':
    case 'L':
      return decimal(in_.line("an integer"));
    case 'J':
      return make_.integer(in_.number<int32_t>("an integer"));
    case 'K':
      return make_.integer(in_.number<uint8_t>("an integer"));
    case 'M':
      return make_.integer(in_.number<uint16_t>("an integer"));
    case 0x8a:
      return long_integer(length<uint8_t>("an integer"));
    case 0x8b:
      return long_integer(length<int32_t>("an integer"));
    case 'F':
      return number(in_.line("a number"));
    // This is the protocol's only big-endian operand.
    case 'G':
      return number(std::bit_cast<double>(__builtin_bswap64(in_.number<uint64_t>("a number"))));
    case 'S':
      return line(&unquoted);
    case 'V':
      return line(&unescaped);
    case 'T':
      return bytes_of<int32_t>(Object::Kind::kString, "a string");
    case 'U':
    case 0x8c:
      return bytes_of<uint8_t>(Object::Kind::kString, "a string");
    case 'X':
      return bytes_of<uint32_t>(Object::Kind::kString, "a string");
    case 0x8d:
      return bytes_of<uint64_t>(Object::Kind::kString, "a string");
    case 'B':
      return bytes_of<uint32_t>(Object::Kind::kBytes, "bytes");
    case 'C':
      return bytes_of<uint8_t>(Object::Kind::kBytes, "bytes");
    case 0x8e:
    case 0x96:
      return bytes_of<uint64_t>(Object::Kind::kBytes, "bytes");
    default:
      return nullptr;
  }
}

std::string PickleConstants::text(uint64_t count, const char* what) {
  in_.need(count, what);
  make_.charge(count);
  return in_.text(count, what);
}

template <class Length>
uint64_t PickleConstants::length(const char* what) {
  const auto count = in_.number<Length>(what);
  if (std::is_signed_v<Length> && count < 0) make_.corrupt(formatted("{} has a negative length", what));
  return static_cast<uint64_t>(count);
}

template <class Length>
PickleObject* PickleConstants::bytes_of(Object::Kind kind, const char* what) {
  return make_.make(kind, text(length<Length>(what), what));
}

// The bytes are two's complement, little-endian. Integers that do not fit in 64 bits are kept as
// bytes.
PickleObject* PickleConstants::long_integer(uint64_t count) {
  std::string bytes = text(count, "an integer");
  const char fill = !bytes.empty() && (bytes.back() & 0x80) ? '\xff' : '\0';
  if (bytes.size() <= sizeof(int64_t)) {
    bytes.resize(sizeof(int64_t), fill);
    int64_t value;
    std::memcpy(&value, bytes.data(), sizeof(value));
    return make_.integer(value);
  }
  PickleObject* record = make_.make(Object::Kind::kRecord, "builtins.int");
  make_.add_item(*record, *make_.make(Object::Kind::kBytes, std::move(bytes)));
  return record;
}

PickleObject* PickleConstants::decimal(std::string_view digits) {
  // Protocols 0 and 1 write booleans as the integers 00 and 01; a LONG ends in L.
  if (digits == "00" || digits == "01") return make_.boolean(digits == "01");
  if (digits.ends_with('L')) digits.remove_suffix(1);
  int64_t value = 0;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (code == std::errc::result_out_of_range)
    make_.unsupported(formatted("the integer {} has more than 64 bits", shown(digits)),
                      "save the file with a newer pickle protocol");
  if (code != std::errc() || end != digits.data() + digits.size())
    make_.corrupt(formatted("an integer should be here, found {}", shown(digits)));
  return make_.integer(value);
}

PickleObject* PickleConstants::number(double value) {
  PickleObject* made = make_.make(Object::Kind::kNumber);
  made->number = value;
  return made;
}

PickleObject* PickleConstants::number(std::string_view digits) {
  double value = 0;  // the digits are as Python's repr writes them; the locale does not matter
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (code != std::errc() || end != digits.data() + digits.size())
    make_.corrupt(formatted("a number should be here, found {}", shown(digits)));
  return number(value);
}

PickleObject* PickleConstants::line(std::optional<std::string> (*decode)(std::string_view)) {
  const std::string_view line = in_.line("a string");
  make_.charge(4 * line.size());
  std::optional<std::string> decoded = decode(line);
  if (!decoded) make_.corrupt(formatted("a string should be here, found {}", shown(line)));
  return make_.make(Object::Kind::kString, std::move(*decoded));
}

}  // namespace gannet::files
