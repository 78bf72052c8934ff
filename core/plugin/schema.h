// A plugin's parameter schema: reads the declarations safely, converts values, and checks the
// schema itself.
#pragma once

#include <gannet/error.h>

#include <optional>
#include <string>
#include <vector>

#include "plugin/plugin.h"

namespace gannet::plugin {

// The specs of a descriptor, read with the plugin's own stride.
std::vector<const gannet_param_spec*> specs_of(const gannet_descriptor& descriptor);

// A value that fits its spec. Only the member for the spec's type is meaningful.
struct ConvertedValue {
  int64_t integer = 0;
  double number = 0;
  std::string text;
  std::vector<double> list;  // FLOAT_LIST, INT_LIST
  std::vector<int64_t> integers;
  std::vector<std::string> texts;
};

// Converts as the config does ("2" for an integer, 5e8 for an integer, "false" for a boolean) and checks range, choices and
// length. Throws Error(kConfig) with the bare reason: "expected a number of at least 0, found -1".
ConvertedValue convert(const gannet_param_spec& spec, const Value& value);

// Checks a new value, during training, of a dynamic number or a list element ("betas[0]"). Throws
// as convert does.
void check_dynamic(const gannet_descriptor& descriptor, const std::string& name, double value);

// The default, if any. Throws as convert does, and if the text is not JSON.
std::optional<ConvertedValue> default_of(const gannet_param_spec& spec);

// Throws Error(kPlugin) with the bare reason if the schema contradicts itself.
void check_schema(const gannet_descriptor& descriptor);

// All errors that parse_params would throw for these params; empty if they are valid.
std::vector<Error> mistakes_in(const Plugin& plugin, const Dict& params,
                               const std::function<std::string(const std::string& member)>& where);

// "learning rate" for a gannet_param_role.
const char* role_name(uint32_t role);

// "number", "list of 2 numbers", "one of: cos, linear".
std::string type_text(const gannet_param_spec& spec);
// ">= 0, < 1", or "".
std::string range_text(const gannet_param_spec& spec);

}  // namespace gannet::plugin
