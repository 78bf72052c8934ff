#include "base/call_record.h"

namespace gannet {

size_t write_record(const CallRecord& record, char* into, size_t bytes) {
  size_t at = 0;
  const auto add = [&](const char* text) {
    for (; *text && at + 1 < bytes; ++text) into[at++] = static_cast<unsigned char>(*text) < 0x20 || *text == 0x7f ? '?' : *text;
  };
  add("inside of ");
  add(record.kind);
  add(*record.kind ? " plugin " : "plugin ");
  add(record.name);
  add(*record.version ? " " : "");
  add(record.version);
  add(", ");
  add(record.call);
  if (record.step > 0) {
    char digits[24];
    size_t place = sizeof(digits);
    digits[--place] = 0;
    for (uint64_t rest = record.step; rest > 0; rest /= 10) digits[--place] = static_cast<char>('0' + rest % 10);
    add(", step ");
    add(digits + place);
  }
  if (*record.tensor) {
    add(", tensor '");
    add(record.tensor);
    add("'");
  }
  if (*record.caller) {
    add(", for ");
    add(record.caller);
  }
  if (bytes > 0) into[at] = 0;
  return at;
}

std::string text_of(const CallRecord& record) {
  char text[640];
  return {text, write_record(record, text, sizeof(text))};
}

}  // namespace gannet
