// Members of JSON objects of unknown origin, each with an error that names its place.
#pragma once

#include <gannet/value.h>

#include <cstdint>
#include <string>

namespace gannet::exported {

// Throws Error(kCorrupt): "<where>: <found>".
[[noreturn]] void refuse_file(const std::string& where, const std::string& found);

// A name of a file appears in messages and in paths of modules: at most 1024 bytes, no control characters.
void require_name(const std::string& name, const std::string& where);

// These throw if the member is missing or has another type. A text is a name, as above.
const Value& member(const Value& object, const char* key, const std::string& where);
std::string text(const Value& object, const char* key, const std::string& where);
int64_t integer(const Value& object, const char* key, const std::string& where);
const List& list(const Value& object, const char* key, const std::string& where);

}  // namespace gannet::exported
