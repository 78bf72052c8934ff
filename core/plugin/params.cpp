// Converts the "params" of a config according to a plugin's schema.
#include <gannet/error.h>

#include <algorithm>
#include <optional>

#include "base/format.h"
#include "base/text.h"
#include "plugin/plugin.h"
#include "plugin/schema.h"

namespace gannet::plugin {

// The memory that view_ points to. It is filled once and then never moves, since copies of a
// ParamSet share it.
struct ParamSet::Storage {
  std::vector<std::optional<ConvertedValue>> converted;  // nullopt: the param has neither a value nor a default, or is null
  std::vector<gannet_param_value> values;
  std::vector<std::vector<const char*>> strings;  // [specs] the elements of each list of strings
};

namespace {

using MemberDescription = std::function<std::string(const std::string& member)>;

bool is_comment(const std::string& key) { return key.starts_with('_') || key.starts_with("x-"); }

// Converts the param of each spec in the schema. Throws at the first mistake, or collects all of
// them if `mistakes` is given.
std::vector<std::optional<ConvertedValue>> convert_all(const Plugin& plugin, const Dict& params, const MemberDescription& where,
                                                       std::vector<Error>* mistakes) {
  const auto refuse = [&](const std::string& member, const std::string& reason, const std::string& next_step) {
    const std::string place = where ? where(member) : "";
    const Error error(ErrorCode::kConfig, (place.empty() ? "" : formatted("{}: ", place)) + reason, next_step);
    if (!mistakes) throw error;
    mistakes->push_back(error);
  };
  const std::string who = formatted("{} plugin {}", kind_name(plugin.kind()), plugin.name());
  const auto specs = specs_of(*plugin.descriptor);
  std::vector<std::string> names;
  for (const auto* spec : specs) names.push_back(spec->name);
  const std::string legal = names.empty() ? "it takes no params" : formatted("it takes: {}", join(names, ", "));

  for (const auto& [key, unused] : params.entries())
    if (!is_comment(key) && std::find(names.begin(), names.end(), key) == names.end())
      refuse(key, formatted("{} has no parameter '{}'{}", who, key, did_you_mean(key, names)), legal);

  std::vector<std::optional<ConvertedValue>> converted(specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    const auto& spec = *specs[i];
    const Value* given = params.find(spec.name);
    if (given && given->is_null()) {
      if (!(spec.flags & GANNET_PARAM_NULLABLE))
        refuse(spec.name, formatted("parameter '{}' of {}: expected {}, found null", spec.name, who, type_text(spec)),
               "give a value, or leave the key out for the default");
    } else if (given) {
      try {
        converted[i] = convert(spec, *given);
      } catch (const Error& error) {
        refuse(spec.name, formatted("parameter '{}' of {}: {}", spec.name, who, error.message()),
               formatted("what it means: {}; `gannet plugins info {}` lists all parameters", printable(spec.doc ? spec.doc : ""),
                         plugin.name()));
      }
    } else if (spec.flags & GANNET_PARAM_REQUIRED) {
      refuse(
          "",
          formatted("{} needs the parameter '{}' ({}), which is not given", who, spec.name, printable(spec.doc ? spec.doc : "")),
          formatted("add it to \"params\"; it is {}", type_text(spec)));
    } else {
      converted[i] = default_of(spec);
    }
  }
  return converted;
}

}  // namespace

std::vector<Error> mistakes_in(const Plugin& plugin, const Dict& params, const MemberDescription& where) {
  std::vector<Error> mistakes;
  convert_all(plugin, params, where, &mistakes);
  return mistakes;
}

ParamSet parse_params(const Plugin& plugin, const Dict& params, const MemberDescription& where) {
  ParamSet set;
  set.storage_ = std::make_shared<ParamSet::Storage>();
  auto& [converted, values, strings] = *set.storage_;
  converted = convert_all(plugin, params, where, nullptr);
  const auto specs = specs_of(*plugin.descriptor);
  strings.resize(specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    const auto& spec = *specs[i];
    const Value* given = params.find(spec.name);
    gannet_param_value value{};
    value.struct_size = sizeof(value);
    value.type = spec.type;
    value.name = spec.name;
    value.is_given = given != nullptr;
    value.is_set = converted[i].has_value();
    if (!converted[i]) converted[i].emplace();
    const ConvertedValue& known = *converted[i];
    value.integer = known.integer;
    value.number = known.number;
    value.string = value.is_set && spec.type == GANNET_PARAM_STRING ? known.text.c_str() : nullptr;
    value.list = known.list.data();
    value.list_count = std::max(known.list.size(), known.texts.size());
    value.integers = known.integers.data();
    for (const std::string& text : known.texts) strings[i].push_back(text.c_str());
    value.strings = strings[i].data();
    values.push_back(value);

    if (!(spec.flags & GANNET_PARAM_DYNAMIC)) continue;
    if (spec.type == GANNET_PARAM_FLOAT) {
      set.dynamic_names_.push_back(spec.name);
      set.dynamic_values_.push_back(value.number);
      set.dynamic_roles_.push_back(spec.roles ? spec.roles[0] : uint32_t{GANNET_ROLE_NONE});
    }
    for (size_t j = 0; j < known.list.size(); ++j) {
      set.dynamic_names_.push_back(formatted("{}[{}]", spec.name, j));
      set.dynamic_values_.push_back(known.list[j]);
      set.dynamic_roles_.push_back(spec.roles ? spec.roles[j] : uint32_t{GANNET_ROLE_NONE});
    }
  }
  set.view_.struct_size = sizeof(set.view_);
  set.view_.values = values.data();
  set.view_.count = values.size();
  set.view_.stride = sizeof(gannet_param_value);
  return set;
}

}  // namespace gannet::plugin
