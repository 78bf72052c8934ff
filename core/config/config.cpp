#include <gannet/config.h>
#include <gannet/error.h>

#include <filesystem>
#include <optional>

#include "config/document.h"

namespace gannet {
namespace {

// Base64, in the standard or the URL-safe alphabet. Launchers pass a config to their processes this way.
std::optional<std::string> decode_base64(const std::string& text) {
  std::string result;
  uint32_t bits = 0;
  int count = 0;
  for (const char letter : text.substr(0, text.find('='))) {
    int digit = 0;
    if (letter >= 'A' && letter <= 'Z')
      digit = letter - 'A';
    else if (letter >= 'a' && letter <= 'z')
      digit = letter - 'a' + 26;
    else if (letter >= '0' && letter <= '9')
      digit = letter - '0' + 52;
    else if (letter == '+' || letter == '-')
      digit = 62;
    else if (letter == '/' || letter == '_')
      digit = 63;
    else
      return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count >= 8) {
      count -= 8;
      result += static_cast<char>(bits >> count & 0xFF);
    }
  }
  return result;
}

bool begins_object(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string::npos && text[first] == '{';
}

}  // namespace

Config::Config(const std::string& path_or_json) {
  if (path_or_json.empty()) throw Error(ErrorCode::kConfig, "the config's path is empty", "name the JSON file, or give its text");
  std::error_code error;
  if (begins_object(path_or_json)) {
    document_ = config::Document::from_text(path_or_json, "config text");
    return;
  }
  if (!std::filesystem::exists(path_or_json, error)) {
    const auto decoded = decode_base64(path_or_json);
    if (decoded && begins_object(*decoded)) {
      document_ = config::Document::from_text(*decoded, "config in base64");
      return;
    }
  }
  document_ = config::Document::from_file(path_or_json);
}

Config::Config(const Dict& dictionary) : document_(config::Document::from_dict(dictionary, "code")) {}

Config& Config::overwrite(const Dict& dictionary, const std::string& origin) {
  document_ = document_ ? document_->merged(dictionary, origin) : config::Document::from_dict(dictionary, origin);
  return *this;
}

}  // namespace gannet
