#include "read_arguments.h"

#include <algorithm>
#include <limits>

#include "json_members.h"

namespace gannet::exported {
namespace {

constexpr size_t kMostLevels = 4;  // nesting of lists in an argument; operators have two levels at most

}  // namespace

void ArgumentReader::add_value(const std::string& name, const std::string& where) {
  if (!values_.emplace(name, values_.size()).second) refuse_file(where, "the name '" + name + "' is there twice in one graph");
}

void ArgumentReader::expect(const List& nodes) {
  for (const Value& node : nodes)
    if (node.is_dict())
      if (const Value* name = node.as_dict().find("name"); name && name->is_string()) expected_.insert(name->as_string());
}

Argument ArgumentReader::read(const Value& json, const std::string& where, size_t level) {
  using Kind = Argument::Kind;
  Argument made;
  if (json.is_null()) return made;
  if (json.is_bool()) {
    made.kind = Kind::kBool;
    made.integer = json.as_bool();
  } else if (json.is_int()) {
    made.kind = Kind::kInt;
    made.integer = json.as_int();
  } else if (json.is_number()) {
    made.kind = Kind::kFloat;
    made.real = json.as_number();
  } else if (json.is_string()) {
    made.kind = Kind::kString;
    made.text = json.as_string();
    require_name(made.text, where);
  } else if (json.is_list()) {
    if (level >= kMostLevels)
      refuse_file(where, "an argument is a list nested deeper than " + std::to_string(kMostLevels) + " levels");
    if (json.as_list().size() > kMostArguments)
      refuse_file(where, "a list of more than " + std::to_string(kMostArguments) + " elements");
    made.kind = Kind::kList;
    for (const Value& one : json.as_list()) made.list.push_back(read(one, where, level + 1));
  } else {
    return read_tagged(json.as_dict(), where);
  }
  return made;
}

// {"ref": "add_1"}, {"dtype": "float32"} ...
Argument ArgumentReader::read_tagged(const Dict& json, const std::string& where) {
  using Kind = Argument::Kind;
  if (json.entries().size() != 1 || !json.entries()[0].second.is_string())
    refuse_file(where, "an argument that is an object has one member, a string");
  const auto& [tag, value] = json.entries()[0];
  Argument made;
  made.text = value.as_string();
  require_name(made.text, where);
  if (tag == "ref") {
    const auto found = values_.find(made.text);
    if (found == values_.end())
      refuse_file(where, "the value '" + made.text + "' is " +
                             (expected_.contains(made.text) ? "used before it is made" : "made nowhere"));
    made.kind = Kind::kValue;
    made.integer = static_cast<int64_t>(found->second);
  } else if (tag == "graph") {
    const auto found = std::find_if(earlier_.begin(), earlier_.end(), [&](const Graph& one) { return one.name == made.text; });
    if (found == earlier_.end()) refuse_file(where, "the graph '" + made.text + "' is none of those before this one");
    depth_ = std::max(depth_, found->depth + 1);
    made.kind = Kind::kGraph;
    made.integer = found - earlier_.begin();
  } else if (tag == "float") {
    made.kind = Kind::kFloat;
    if (made.text != "inf" && made.text != "-inf" && made.text != "nan")
      refuse_file(where, "a float is none of inf, -inf and nan");
    made.real = made.text == "nan" ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
    if (made.text == "-inf") made.real = -made.real;
  } else if (tag == "dtype") {
    made.kind = Kind::kDtype;
  } else if (tag == "layout") {
    made.kind = Kind::kLayout;
  } else if (tag == "memory_format") {
    made.kind = Kind::kMemoryFormat;
  } else if (tag == "device") {
    if (made.text != "module") refuse_file(where, "a device other than that of the module");
    made.kind = Kind::kDevice;
  } else {
    refuse_file(where, "an argument of an unknown kind");
  }
  return made;
}

}  // namespace gannet::exported
