// Reads arguments from a JSON or YAML file. The error for another known type, such as gzip, names that type.
#include <gannet/error.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

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

// The leading bytes of a kind of file that is neither JSON nor YAML.
struct FileSignature {
  std::string_view bytes;
  const char *what, *next_step;
};
constexpr const char* kOther = "name a .json or .yaml file";
constexpr const char* kUnpack = "unpack it, and name what was in it";
constexpr const char* kWebPage = "the download met an error page or a login: open it to see, and fetch the file again";
constexpr FileSignature kStarts[] = {
    {"\x1f\x8b", "compressed with gzip", kUnpack},
    {"\x28\xb5\x2f\xfd", "compressed with zstd", kUnpack},
    {"BZh", "compressed with bzip2", kUnpack},
    {"PK\3\4", "a zip archive, as torch.save writes them", kOther},
    {"version https://git-lfs.github.com/spec/", "a Git LFS pointer, which stands for a file that was not fetched",
     "run `git lfs install` and `git lfs pull` in the repository, or download the file itself"},
    {"<!DOCTYPE", "a web page (HTML)", kWebPage},
    {"<!doctype", "a web page (HTML)", kWebPage},
    {"<html", "a web page (HTML)", kWebPage},
    {"<?xml", "XML", kWebPage},
};

constexpr std::string_view kSpaces = " \t\r\n";

std::string_view trimmed(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // the UTF-8 byte order mark
  return text.substr(std::min(text.find_first_not_of(kSpaces), text.size()));
}

void require_text(const std::string& text, const std::string& path) {
  for (const auto& [bytes, what, next_step] : kStarts)
    if (text.starts_with(bytes) || trimmed(text).starts_with(bytes))
      throw Error(ErrorCode::kArgument, path + " is " + what, next_step);
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff"))
    throw Error(ErrorCode::kArgument, path + " is UTF-16 text", "save it as UTF-8");
  if (text.find('\0') != std::string::npos) throw Error(ErrorCode::kArgument, path + " is a binary file, not a text", kOther);
}

// Refuses a file that holds only comments and document marks: it may be truncated, and the run
// would train with nothing but defaults.
void require_content(std::string_view text, bool is_yaml, const std::string& path) {
  text = trimmed(text);
  while (is_yaml && !text.empty()) {
    const bool is_mark = text.starts_with("---") || text.starts_with("...");
    if (!is_mark && text[0] != '#' && text[0] != '%') break;
    text = trimmed(text.substr(is_mark ? 3 : std::min(text.find('\n'), text.size())));
  }
  if (text.empty())
    throw Error(ErrorCode::kArgument, path + " is empty: it names no argument", "give arguments; {} stands for every default");
}

// Recognises YAML, such as "learning_rate: 1e-3", in a file with a name that ends in .json.
bool is_yaml_mapping(std::string_view text) {
  text = trimmed(text);
  if (text.starts_with("---") || text.starts_with('#')) return true;
  const std::string_view line = text.substr(0, text.find_first_of("\r\n"));
  const size_t colon = line.find(':');
  const auto is_of_name = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-'; };
  return colon > 0 && colon < line.size() &&
         std::all_of(line.begin(), line.begin() + static_cast<ptrdiff_t>(colon), is_of_name) &&
         (colon + 1 == line.size() || line[colon + 1] == ' ');
}

}  // namespace

Value parse_json(const std::string& text, const std::string& what) { return common::parse_json(text, what); }

Dict read_file(const std::string& path) {
  const std::string text = read(path);
  const bool is_yaml = !path.ends_with(".json");
  require_text(text, path);
  require_content(text, is_yaml, path);
  if (!is_yaml && is_yaml_mapping(text))
    throw Error(ErrorCode::kArgument, path + " is YAML, under the name of a JSON file", "rename it to .yaml");
  const Value value = is_yaml ? common::parse_yaml(text, path) : parse_json(text, path);
  if (!value.is_dict())
    throw Error(ErrorCode::kArgument, path + " holds " + value.type_name() + ", not names with values",
                "write learning_rate: 1e-4 in YAML, {\"learning_rate\": 1e-4} in JSON");
  return value.as_dict();
}

}  // namespace gannet::arguments
