#include "common/bounded_json.h"

#include <gannet/error.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace gannet::common {
namespace {

using nlohmann::json;

class Builder : public json::json_sax_t {
 public:
  Builder(const std::string& text, const std::string& what, const JsonLimits& limits)
      : text_(text), what_(what), limits_(limits) {}

  bool null() override { return add(Value()); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(int64_t value) override { return add(value); }
  bool number_unsigned(uint64_t value) override {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      refuse("the integer " + std::to_string(value) + " does not fit into 64 bits with a sign");
    return add(static_cast<int64_t>(value));
  }
  // The parser gives an integer that is too large for 64 bits as a floating-point number.
  bool number_float(double value, const std::string& digits) override {
    if (digits.find_first_of(".eE") == std::string::npos)
      refuse("the integer " + digits.substr(0, 40) + " does not fit into 64 bits");
    return add(value);
  }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(json::binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Dict()); }
  bool start_array(size_t) override { return open(List()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    const auto& entries = open_.back().value.as_dict().entries();
    if (entries.size() >= limits_.members) refuse("an object has more than " + std::to_string(limits_.members) + " members");
    if (open_.back().value.as_dict().find(name)) refuse("a key is there twice in one object");
    open_.back().key = std::move(name);
    return true;
  }

  bool parse_error(size_t byte, const std::string&, const json::exception&) override {
    const size_t at = std::min(byte > 0 ? byte - 1 : 0, text_.size());
    const auto line = std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at), '\n') + 1;
    const size_t line_start = at == 0 ? 0 : text_.rfind('\n', at - 1) + 1;  // npos + 1 is 0
    const std::string place = what_ + ":" + std::to_string(line) + ":" + std::to_string(at - line_start + 1);
    throw Error(
        ErrorCode::kCorrupt,
        place + (at == text_.size() ? ": the JSON text ends here and is not complete" : ": the text is not JSON from here"),
        "write or copy the file again");
  }

  Value take() { return std::move(root_); }

 private:
  struct Container {
    Value value;
    std::string key;  // of the next member, in an object
  };

  [[noreturn]] void refuse(const std::string& found) const {
    throw Error(ErrorCode::kCorrupt, what_ + ": " + found, "write or copy the file again");
  }
  bool open(Value container) {
    if (open_.size() >= limits_.depth) refuse("nested deeper than " + std::to_string(limits_.depth) + " levels");
    open_.push_back({std::move(container), ""});
    return true;
  }
  bool close() {
    Value done = std::move(open_.back().value);
    open_.pop_back();
    return add(std::move(done));
  }
  bool add(Value value) {
    if (open_.empty())
      root_ = std::move(value);
    else if (open_.back().value.is_dict())
      open_.back().value.as_dict().entries().emplace_back(std::move(open_.back().key), std::move(value));
    else
      open_.back().value.as_list().push_back(std::move(value));
    return true;
  }

  const std::string& text_;
  const std::string& what_;
  const JsonLimits& limits_;
  std::vector<Container> open_;  // the outermost first
  Value root_;
};

}  // namespace

Value parse_bounded_json(const std::string& text, const std::string& what, const JsonLimits& limits) {
  if (text.size() > limits.bytes)
    throw Error(ErrorCode::kCorrupt, what + ": larger than " + std::to_string(limits.bytes >> 20) + " MiB",
                "was another file meant?");
  Builder builder(text, what, limits);
  json::sax_parse(text, &builder);
  return builder.take();
}

}  // namespace gannet::common
