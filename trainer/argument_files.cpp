// Arguments in a JSON or YAML file, read into a Value.
#include <gannet/error.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "argument_table.h"
#include "common/json.h"
#include "common/yaml.h"

namespace gannet::arguments {
namespace {

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in || std::filesystem::is_directory(path))
    throw Error(ErrorCode::kNotFound, "cannot open the file of arguments " + path, "name a .json or .yaml file");
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

Value parse_json(const std::string& text, const std::string& what) { return common::parse_json(text, what); }

Dict read_file(const std::string& path) {
  const std::string text = read(path);
  const Value value = path.ends_with(".json") ? parse_json(text, path) : common::parse_yaml(text, path);
  if (!value.is_dict()) throw Error(ErrorCode::kArgument, path + " holds " + value.type_name() + ", not names with values");
  return value.as_dict();
}

}  // namespace gannet::arguments
