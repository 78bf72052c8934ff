// Reads members of JSON objects from untrusted files; each error names the member's position.
#pragma once

#include <gannet/value.h>

#include <cstdint>
#include <string>

namespace gannet::exported {

// Throws Error(kCorrupt): "<where>: <found>".
[[noreturn]] void refuse_file(const std::string& where, const std::string& found);

// A name from a file, which appears in messages and in module paths: at most 1024 bytes, no control
// characters.
void require_name(const std::string& name, const std::string& where);

// These throw if the member is missing or has another type. Strings are restricted like names,
// above.
const Value& member(const Value& object, const char* key, const std::string& where);
std::string text(const Value& object, const char* key, const std::string& where);
int64_t integer(const Value& object, const char* key, const std::string& where);
const List& list(const Value& object, const char* key, const std::string& where);

}  // namespace gannet::exported
