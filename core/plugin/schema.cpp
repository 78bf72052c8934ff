#include "plugin/schema.h"

#include <gannet/error.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/format.h"
#include "base/text.h"

namespace gannet::plugin {
namespace {

// These limits are far above what a plugin declares or the contract's struct will ever need; a list
// that exceeds one is damaged.
constexpr uint64_t kMostParams = 1024, kLargestStride = 4096;

[[noreturn]] void mismatch(const gannet_param_spec& spec, const Value& value) {
  const std::string range = range_text(spec);
  throw Error(ErrorCode::kConfig, formatted("expected {}{}, found {}", type_text(spec),
                                            range.empty() ? "" : formatted(" {}", range), value.to_json()));
}

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\n"), last = text.find_last_not_of(" \t\n");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

std::optional<double> number_of(const Value& value) {
  if (value.is_number()) return value.as_number();
  if (!value.is_string()) return std::nullopt;
  std::string text = trimmed(value.as_string());
  if (text.starts_with('+')) text.erase(0, 1);
  double number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<bool> boolean_of(const Value& value) {
  if (value.is_bool()) return value.as_bool();
  if (value.is_number() && (value.as_number() == 0 || value.as_number() == 1)) return value.as_number() == 1;
  if (!value.is_string()) return std::nullopt;
  const std::string word = lower(value.as_string());
  for (const char* yes : {"true", "yes", "on", "t", "y", "1"})
    if (word == yes) return true;
  for (const char* no : {"false", "no", "off", "f", "n", "0"})
    if (word == no) return false;
  return std::nullopt;
}

std::optional<int64_t> integer_of(const Value& value) {
  if (value.is_int()) return value.as_int();
  if (value.is_bool()) return value.as_bool();
  if (value.is_string()) {  // exact, unlike a double
    const std::string text = trimmed(value.as_string());
    int64_t integer = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), integer);
    if (failed == std::errc() && end == text.data() + text.size()) return integer;
  }
  const auto number = number_of(value);
  if (!number || std::trunc(*number) != *number || std::abs(*number) >= 0x1p63) return std::nullopt;
  return static_cast<int64_t>(*number);
}

bool in_range(const gannet_param_spec& spec, double number) {
  if (!std::isfinite(number)) return false;
  if (spec.flags & GANNET_PARAM_HAS_MIN && ((spec.flags & GANNET_PARAM_MIN_EXCLUSIVE) ? number <= spec.min : number < spec.min))
    return false;
  if (spec.flags & GANNET_PARAM_HAS_MAX && ((spec.flags & GANNET_PARAM_MAX_EXCLUSIVE) ? number >= spec.max : number > spec.max))
    return false;
  return true;
}

std::string plain(double number) {
  return std::trunc(number) == number && std::abs(number) < 1e15 ? std::to_string(static_cast<int64_t>(number))
                                                                 : Value(number).to_json();
}

// Converts JSON to a Value. Used only for defaults: the config has its own reader, which keeps
// positions.
Value to_value(const nlohmann::json& json) {
  if (json.is_null()) return nullptr;
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (!json.is_array()) throw Error(ErrorCode::kConfig, "a dictionary is no parameter's value");
  List list;
  for (const auto& element : json) list.push_back(to_value(element));
  return list;
}

[[noreturn]] void bad(const gannet_param_spec& spec, const std::string& reason) {
  throw Error(ErrorCode::kPlugin, formatted("its parameter '{}' {}", spec.name, reason));
}

void check_spec(const gannet_param_spec& spec) {
  if (spec.type < GANNET_PARAM_BOOL || spec.type > GANNET_PARAM_STRING_LIST)
    bad(spec, formatted("has an unknown type, {}", spec.type));
  constexpr uint32_t kKnownFlags = 2 * GANNET_PARAM_DEPRECATED - 1;
  if (spec.flags & ~kKnownFlags)
    bad(spec, formatted("has flags that this Gannet does not know (bits {:#x})", spec.flags & ~kKnownFlags));
  const bool required = spec.flags & GANNET_PARAM_REQUIRED, nullable = spec.flags & GANNET_PARAM_NULLABLE;
  if (required && spec.default_json) bad(spec, "is required and has a default");
  if (spec.choices && spec.type != GANNET_PARAM_STRING && spec.type != GANNET_PARAM_STRING_LIST)
    bad(spec, "has choices and is neither a string nor a list of them");
  if (spec.flags & GANNET_PARAM_HAS_MIN && spec.flags & GANNET_PARAM_HAS_MAX && spec.min > spec.max)
    bad(spec, "has a minimum above its maximum");
  if (spec.flags & GANNET_PARAM_DYNAMIC) {
    const bool fixed = spec.type == GANNET_PARAM_FLOAT || (spec.type == GANNET_PARAM_FLOAT_LIST && spec.length > 0);
    if (!fixed) bad(spec, "is dynamic and is neither a number nor a list of fixed length");
    if (nullable || (!required && !spec.default_json)) bad(spec, "is dynamic and may be without a value");
  } else if (spec.roles) {
    bad(spec, "has a role and is not dynamic: nothing could change it");
  }
  try {
    default_of(spec);
  } catch (const Error& error) {
    bad(spec, formatted("has a default that does not fit it ({}): {}", spec.default_json, error.message()));
  }
}

}  // namespace

std::vector<const gannet_param_spec*> specs_of(const gannet_descriptor& descriptor) {
  std::vector<const gannet_param_spec*> specs;
  const char* bytes = reinterpret_cast<const char*>(descriptor.params);
  for (uint64_t i = 0; i < descriptor.param_count; ++i)
    specs.push_back(reinterpret_cast<const gannet_param_spec*>(bytes + i * descriptor.param_stride));
  return specs;
}

namespace {

// The elements of a list; a single value counts as a list of one element.
List elements_of(const gannet_param_spec& spec, const Value& value) {
  List elements = value.is_list() ? value.as_list() : List{value};
  if (spec.length != 0 && elements.size() != spec.length) mismatch(spec, value);
  return elements;
}

// Checks a string against the spec's choices. `whole`: the whole value in the config, for the
// message.
std::string chosen(const gannet_param_spec& spec, const Value& value, const Value& whole) {
  if (!value.is_string()) mismatch(spec, whole);
  const auto choices = split(spec.choices ? spec.choices : "", '|');
  if (!choices.empty() && std::find(choices.begin(), choices.end(), value.as_string()) == choices.end())
    throw Error(ErrorCode::kConfig,
                formatted("expected {}, found {}{}", type_text(spec), whole.to_json(), did_you_mean(value.as_string(), choices)));
  return value.as_string();
}

}  // namespace

ConvertedValue convert(const gannet_param_spec& spec, const Value& value) {
  ConvertedValue result;
  switch (spec.type) {
    case GANNET_PARAM_BOOL: {
      const auto boolean = boolean_of(value);
      if (!boolean) mismatch(spec, value);
      result.integer = *boolean;
      break;
    }
    case GANNET_PARAM_INT: {
      const auto integer = integer_of(value);
      if (!integer || !in_range(spec, static_cast<double>(*integer))) mismatch(spec, value);
      result.integer = *integer;
      result.number = static_cast<double>(*integer);
      break;
    }
    case GANNET_PARAM_FLOAT: {
      const auto number = number_of(value);
      if (!number || !in_range(spec, *number)) mismatch(spec, value);
      result.number = *number;
      break;
    }
    case GANNET_PARAM_STRING: {
      result.text = chosen(spec, value, value);
      break;
    }
    case GANNET_PARAM_STRING_LIST: {
      for (const auto& element : elements_of(spec, value)) result.texts.push_back(chosen(spec, element, value));
      break;
    }
    case GANNET_PARAM_INT_LIST: {
      for (const auto& element : elements_of(spec, value)) {
        const auto integer = integer_of(element);
        if (!integer || !in_range(spec, static_cast<double>(*integer))) mismatch(spec, value);
        result.integers.push_back(*integer);
        result.list.push_back(static_cast<double>(*integer));
      }
      break;
    }
    default: {
      for (const auto& element : elements_of(spec, value)) {
        const auto number = number_of(element);
        if (!number || !in_range(spec, *number)) mismatch(spec, value);
        result.list.push_back(*number);
      }
    }
  }
  return result;
}

void check_dynamic(const gannet_descriptor& descriptor, const std::string& name, double value) {
  const std::string of_list = name.substr(0, name.find('['));
  for (const auto* spec : specs_of(descriptor)) {
    if (of_list != spec->name || in_range(*spec, value)) continue;
    throw Error(ErrorCode::kConfig, formatted("expected a number {}, found {}", range_text(*spec), Value(value).to_json()));
  }
}

std::optional<ConvertedValue> default_of(const gannet_param_spec& spec) {
  if (!spec.default_json) return std::nullopt;
  const auto json = nlohmann::json::parse(spec.default_json, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded())
    throw Error(ErrorCode::kConfig,
                spec.type == GANNET_PARAM_STRING
                    ? formatted("it is not JSON: a text has quotes of its own, \"\\\"{}\\\"\"", spec.default_json)
                    : "it is not JSON");
  if (json.is_null() && spec.flags & GANNET_PARAM_NULLABLE) return std::nullopt;
  return convert(spec, to_value(json));
}

void check_schema(const gannet_descriptor& descriptor) {
  if (descriptor.param_count > 0 && !descriptor.params) throw Error(ErrorCode::kPlugin, "its list of parameters is null");
  if (descriptor.param_count > kMostParams)
    throw Error(ErrorCode::kPlugin,
                formatted("it declares {} parameters, at most {} are possible", descriptor.param_count, kMostParams));
  if (descriptor.param_count > 0 && descriptor.param_stride < GANNET_PARAM_SPEC_SIZE_2_0)
    throw Error(ErrorCode::kPlugin, "its list of parameters has too small a stride");
  if (descriptor.param_count > 0 &&
      (descriptor.param_stride > kLargestStride || descriptor.param_stride % alignof(gannet_param_spec)))
    throw Error(ErrorCode::kPlugin,
                formatted("its list of parameters has a stride of {} bytes, which no compiler makes", descriptor.param_stride));
  std::set<std::string> names;
  std::set<uint32_t> roles;
  for (const auto* spec : specs_of(descriptor)) {
    if (spec->struct_size < GANNET_PARAM_SPEC_SIZE_2_0)
      throw Error(ErrorCode::kPlugin, "one of its parameters has too small a struct_size");
    if (!spec->name || !*spec->name) throw Error(ErrorCode::kPlugin, "one of its parameters has no name");
    if (printable(spec->name) != spec->name)
      throw Error(ErrorCode::kPlugin, formatted("the name of one of its parameters has a control character: '{}'", spec->name));
    if (!names.insert(spec->name).second) bad(*spec, "is declared twice");
    check_spec(*spec);
    for (uint32_t i = 0; spec->roles && i < std::max(spec->length, 1u); ++i) {
      const uint32_t role = spec->roles[i];
      if (role >= GANNET_ROLE_COUNT) bad(*spec, formatted("has a role that this Gannet does not know, {}", role));
      if (role != GANNET_ROLE_NONE && !roles.insert(role).second)
        bad(*spec, formatted("has the role of another parameter, {}", role_name(role)));
    }
  }
}

const char* role_name(uint32_t role) {
  constexpr const char* kNames[GANNET_ROLE_COUNT] = {"none", "learning rate", "beta1", "beta2", "momentum", "weight decay"};
  return role < GANNET_ROLE_COUNT ? kNames[role] : "unknown";
}

std::string type_text(const gannet_param_spec& spec) {
  switch (spec.type) {
    case GANNET_PARAM_BOOL:
      return "true or false";
    case GANNET_PARAM_INT:
      return "an integer";
    case GANNET_PARAM_FLOAT:
      return "a number";
    case GANNET_PARAM_STRING:
      return spec.choices ? formatted("one of {}", printable(join(split(spec.choices, '|'), ", "))) : "a string";
    case GANNET_PARAM_INT_LIST:
      return spec.length ? formatted("a list of {} integers", spec.length) : "a list of integers";
    case GANNET_PARAM_STRING_LIST: {
      const std::string each =
          spec.choices ? formatted("strings, each one of {}", printable(join(split(spec.choices, '|'), ", "))) : "strings";
      return spec.length ? formatted("a list of {} {}", spec.length, each) : formatted("a list of {}", each);
    }
    default:
      return spec.length ? formatted("a list of {} numbers", spec.length) : "a list of numbers";
  }
}

std::string range_text(const gannet_param_spec& spec) {
  std::vector<std::string> parts;
  if (spec.flags & GANNET_PARAM_HAS_MIN)
    parts.push_back((spec.flags & GANNET_PARAM_MIN_EXCLUSIVE ? "> " : ">= ") + plain(spec.min));
  if (spec.flags & GANNET_PARAM_HAS_MAX)
    parts.push_back((spec.flags & GANNET_PARAM_MAX_EXCLUSIVE ? "< " : "<= ") + plain(spec.max));
  return join(parts, " and ");
}

}  // namespace gannet::plugin
