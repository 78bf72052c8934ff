// Handles a plugin's parameter schema: reads the declarations safely, converts values, and checks
// the schema itself.
#pragma once

#include <gannet/error.h>

#include <optional>
#include <string>
#include <vector>

#include "plugin/plugin.h"

namespace gannet::plugin {

// The param specs of a descriptor, read with the stride that the plugin gives.
std::vector<const gannet_param_spec*> specs_of(const gannet_descriptor& descriptor);

// A value that fits its spec. Only the members for the spec's type are meaningful.
struct ConvertedValue {
  int64_t integer = 0;
  double number = 0;
  std::string text;
  std::vector<double> list;  // FLOAT_LIST, INT_LIST
  std::vector<int64_t> integers;
  std::vector<std::string> texts;
};

// Converts a value as the config does (accepts "2" and 5e8 for an integer, "false" for a boolean)
// and checks range, choices and length. Throws Error(kConfig) with only the reason: "expected a
// number >= 0, found -1".
ConvertedValue convert(const gannet_param_spec& spec, const Value& value);

// Checks a new value that is set during training, for a dynamic number or an element of a dynamic
// list ("betas[0]"). Throws like convert().
void check_dynamic(const gannet_descriptor& descriptor, const std::string& name, double value);

// The default, if there is one. Throws like convert(), and also if the default's text is not JSON.
std::optional<ConvertedValue> default_of(const gannet_param_spec& spec);

// Throws Error(kPlugin) with only the reason if the schema is invalid.
void check_schema(const gannet_descriptor& descriptor);

// All errors that parse_params would throw for these params; empty if they are valid.
std::vector<Error> mistakes_in(const Plugin& plugin, const Dict& params,
                               const std::function<std::string(const std::string& member)>& where);

// The name of a gannet_param_role: "learning rate".
const char* role_name(uint32_t role);

// Describes the type: "a number", "a list of 2 numbers", "one of cos, linear".
std::string type_text(const gannet_param_spec& spec);
// Describes the range: ">= 0 and < 1"; "" if there is none.
std::string range_text(const gannet_param_spec& spec);

}  // namespace gannet::plugin
