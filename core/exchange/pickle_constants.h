// The instructions of a pickle that push one value written out in the pickle itself: None, booleans, numbers, strings, bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "exchange/bytes.h"
#include "exchange/pickle_maker.h"

namespace gannet::exchange {

class Constants {
 public:
  Constants(Cursor& cursor, Maker& maker) : in_(cursor), make_(maker) {}

  Built* read(unsigned char instruction);  // nullptr: the instruction is none of these

 private:
  std::string text(uint64_t count, const char* what);
  template <class Length>
  uint64_t length(const char* what);
  template <class Length>
  Built* bytes_of(Object::Kind kind, const char* what);
  Built* long_integer(uint64_t count);
  Built* decimal(std::string_view digits);
  Built* number(double value);
  Built* number(std::string_view digits);
  Built* line(std::optional<std::string> (*decode)(std::string_view));

  Cursor& in_;
  Maker& make_;
};

}  // namespace gannet::exchange
