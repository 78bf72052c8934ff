// Pickle instructions that push one literal value: None, booleans, numbers, strings, bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "files/bytes.h"
#include "files/pickle_builder.h"

namespace gannet::files {

class PickleConstants {
 public:
  PickleConstants(Cursor& cursor, PickleBuilder& maker) : in_(cursor), make_(maker) {}

  PickleObject* read(unsigned char instruction);  // nullptr if the instruction is not one of these

 private:
  std::string text(uint64_t count, const char* what);
  template <class Length>
  uint64_t length(const char* what);
  template <class Length>
  PickleObject* bytes_of(Object::Kind kind, const char* what);
  PickleObject* long_integer(uint64_t count);
  PickleObject* decimal(std::string_view digits);
  PickleObject* number(double value);
  PickleObject* number(std::string_view digits);
  PickleObject* line(std::optional<std::string> (*decode)(std::string_view));

  Cursor& in_;
  PickleBuilder& make_;
};

}  // namespace gannet::files
