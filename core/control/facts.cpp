#include "control/facts.h"

#include <gannet/value.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cmath>
#include <cstdio>

#include "base/format.h"

namespace gannet::control {

std::string bits_text(uint64_t hash) {
  char digits[20];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return formatted("bits {}", digits);
}

uint64_t Facts::hash() const { return XXH3_64bits(values_.data(), values_.size() * sizeof(uint64_t)); }

std::string Facts::changes() {
  std::string text;
  for (size_t i = 0; i < rows_.size(); ++i) {
    Row& row = rows_[i];
    if (row.is_sent && row.sent == values_[i]) continue;
    row.is_sent = true;
    row.sent = values_[i];
    text += formatted("{}=", row.name);
    if (row.kind == Kind::kNumber) {
      const double number = std::bit_cast<double>(values_[i]);
      const bool is_whole = number == std::floor(number) && std::abs(number) < 1e15;
      text += is_whole ? std::to_string(static_cast<int64_t>(number)) : Value(number).to_json();
    } else if (row.kind == Kind::kText) {
      text += row.text;
    } else {
      char digits[20];
      std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(values_[i]));
      text += digits;
    }
    text += "\n";
  }
  return text;
}

}  // namespace gannet::control
