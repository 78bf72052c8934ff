// Typed access to hyperparameters.
#include <gannet/error.h>
#include <gannet/hparams.h>

#include <limits>
#include <set>
#include <type_traits>
#include <utility>

#include "common/nearest.h"

namespace gannet {

struct Hparams::State {
  Dict values;
  std::string where;
  std::map<std::string, std::string> origins;
  std::set<std::string> asked;  // names that were asked for, found or not
};

namespace {

// Returns the value at a dotted path, or null if there is none.
const Value* find(const Dict& values, const std::string& path) {
  const Dict* at = &values;
  size_t begin = 0;
  while (true) {
    const size_t dot = path.find('.', begin);
    const Value* found = at->find(path.substr(begin, dot == std::string::npos ? dot : dot - begin));
    if (!found || dot == std::string::npos) return found;
    if (!found->is_dict()) return nullptr;
    at = &found->as_dict();
    begin = dot + 1;
  }
}

void collect_names(const Dict& values, const std::string& prefix, std::vector<std::string>& names) {
  for (const auto& [key, value] : values.entries()) {
    names.push_back(prefix + key);
    if (value.is_dict()) collect_names(value.as_dict(), prefix + key + ".", names);
  }
}

bool is_within(const std::string& inner, const std::string& outer) { return inner.starts_with(outer + "."); }

template <class T>
struct HparamReader;  // wanted() names the type; read() returns whether the value has it

template <>
struct HparamReader<bool> {
  static std::string wanted() { return "a boolean"; }
  static bool read(const Value& value, bool& into) { return value.is_bool() && (into = value.as_bool(), true); }
};
template <class Integer>
  requires(std::is_integral_v<Integer> && !std::same_as<Integer, bool>)
struct HparamReader<Integer> {
  static std::string wanted() { return sizeof(Integer) < 8 ? "an integer of 32 bits" : "an integer"; }
  static bool read(const Value& value, Integer& into) {
    if (!value.is_int() || !std::in_range<Integer>(value.as_int())) return false;
    into = static_cast<Integer>(value.as_int());
    return true;
  }
};
template <class Number>
  requires std::is_floating_point_v<Number>
struct HparamReader<Number> {
  static std::string wanted() { return "a number"; }
  static bool read(const Value& value, Number& into) {
    return value.is_number() && (into = static_cast<Number>(value.as_number()), true);
  }
};
template <>
struct HparamReader<std::string> {
  static std::string wanted() { return "a string"; }
  static bool read(const Value& value, std::string& into) { return value.is_string() && (into = value.as_string(), true); }
};
template <>
struct HparamReader<Dict> {
  static std::string wanted() { return "a dictionary"; }
  static bool read(const Value& value, Dict& into) { return value.is_dict() && (into = value.as_dict(), true); }
};
template <>
struct HparamReader<Value> {
  static std::string wanted() { return "any value"; }
  static bool read(const Value& value, Value& into) { return into = value, true; }
};
template <class T>
struct HparamReader<std::vector<T>> {
  static std::string wanted() {
    return std::same_as<T, Value> ? "a list" : "a list, each part of it " + HparamReader<T>::wanted();
  }
  static bool read(const Value& value, std::vector<T>& into) {
    if (!value.is_list()) return false;
    for (const Value& part : value.as_list()) {
      T one{};
      if (!HparamReader<T>::read(part, one)) return false;
      into.push_back(std::move(one));
    }
    return true;
  }
};

}  // namespace

Hparams::Hparams(Dict values, std::string where, std::map<std::string, std::string> origins)
    : state_(std::make_shared<State>(State{std::move(values), std::move(where), std::move(origins), {}})) {}

template <class T>
T Hparams::get(const std::string& name) const {
  const std::string path = prefix_ + name;
  state_->asked.insert(path);
  const Value* found = find(state_->values, path);
  if (!found || (found->is_null() && !std::same_as<T, Value>)) {
    std::vector<std::string> names;
    collect_names(state_->values, "", names);
    throw Error(ErrorCode::kArgument,
                state_->where + ": hyperparameter '" + path + "' is " + (found ? "null" : "missing") +
                    ", and the trial asks for " + HparamReader<T>::wanted() + (found ? "" : common::did_you_mean(path, names)),
                "give it in a file of hyperparameters, or as --hparam " + path + "=VALUE");
  }
  T value{};
  if (!HparamReader<T>::read(*found, value))
    throw Error(ErrorCode::kArgument, origin(name) + ": hyperparameter '" + path + "' is " + found->to_json().substr(0, 80) +
                                          ", " + found->type_name() + "; the trial asks for " + HparamReader<T>::wanted());
  return value;
}

template bool Hparams::get(const std::string&) const;
template int Hparams::get(const std::string&) const;
template int64_t Hparams::get(const std::string&) const;
template float Hparams::get(const std::string&) const;
template double Hparams::get(const std::string&) const;
template std::string Hparams::get(const std::string&) const;
template Dict Hparams::get(const std::string&) const;
template Value Hparams::get(const std::string&) const;
template List Hparams::get(const std::string&) const;
template std::vector<bool> Hparams::get(const std::string&) const;
template std::vector<int> Hparams::get(const std::string&) const;
template std::vector<int64_t> Hparams::get(const std::string&) const;
template std::vector<float> Hparams::get(const std::string&) const;
template std::vector<double> Hparams::get(const std::string&) const;
template std::vector<std::string> Hparams::get(const std::string&) const;

bool Hparams::has(const std::string& name) const {
  state_->asked.insert(prefix_ + name);
  const Value* found = find(state_->values, prefix_ + name);
  return found && !found->is_null();
}

Hparams Hparams::section(const std::string& name) const {
  get<Dict>(name);  // throws if it is missing or not a dictionary
  // Reading a section does not yet count as reading the values in it.
  state_->asked.erase(prefix_ + name);
  Hparams inner = *this;
  inner.prefix_ = prefix_ + name + ".";
  return inner;
}

const Dict& Hparams::peek() const {
  return prefix_.empty() ? state_->values : find(state_->values, prefix_.substr(0, prefix_.size() - 1))->as_dict();
}

const Dict& Hparams::values() const {
  for (const auto& [key, value] : peek().entries()) state_->asked.insert(prefix_ + key);
  return peek();
}

std::string Hparams::origin(const std::string& name) const {
  std::string path = prefix_ + name;
  while (true) {
    if (const auto known = state_->origins.find(path); known != state_->origins.end()) return known->second;
    const size_t dot = path.rfind('.');
    if (dot == std::string::npos) return state_->where;
    path.resize(dot);
  }
}

const std::string& Hparams::where() const { return state_->where; }

bool Hparams::was_read(const std::string& name) const {
  const std::string path = prefix_ + name;
  for (const std::string& asked : state_->asked)
    if (asked == path || is_within(asked, path) || is_within(path, asked)) return true;
  return false;
}

std::vector<std::string> Hparams::asked_for() const { return {state_->asked.begin(), state_->asked.end()}; }

}  // namespace gannet
