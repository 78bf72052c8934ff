#include "checkpoint/numbers.h"

#include <gannet/error.h>

#include <cmath>

#include "base/format.h"

namespace gannet::checkpoint {
namespace {

[[noreturn]] void impossible(const std::string& where, const std::string& found, const std::string& expected) {
  throw Error(ErrorCode::kCorrupt, formatted("{} is {}, expected {}", where, found, expected),
              "the file is damaged or was edited: use another checkpoint");
}

std::string text_of(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
  return Value(number).to_json();
}

}  // namespace

int64_t checked_count(int64_t count, const std::string& where, int64_t least, int64_t most) {
  if (count < least || count > most)
    impossible(where, std::to_string(count),
               formatted("a number from {} to {}", least, most == kMostCount ? "2^53" : std::to_string(most)));
  return count;
}

int64_t checked_count(double count, const std::string& where) {
  if (!(count >= 0 && count <= static_cast<double>(kMostCount)) || count != std::floor(count))
    impossible(where, text_of(count), "a whole number from 0 to 2^53");
  return static_cast<int64_t>(count);
}

double checked_hyperparameter(const std::string& name, double number, const std::string& where) {
  if (!std::isfinite(number)) impossible(where, text_of(number), "a finite number");
  for (const char* known : {"lr", "initial_lr", "eps", "weight_decay", "momentum"})
    if (name == known && number < 0) impossible(where, text_of(number), "a number that is not negative");
  if (name.starts_with("betas") && (number < 0 || number > 1)) impossible(where, text_of(number), "a number from 0 to 1");
  return number;
}

double checked_loss_scale(double scale, const std::string& where) {
  if (!std::isfinite(scale) || scale <= 0) impossible(where, text_of(scale), "a finite number above 0");
  return scale;
}

}  // namespace gannet::checkpoint
