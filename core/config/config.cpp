#include <gannet/config.h>
#include <gannet/error.h>

#include <filesystem>
#include <optional>

#include "config/document.h"
#include "config/gannet_sections.h"

namespace gannet {
namespace {

// Decodes base64, in the standard or the URL-safe alphabet. Launchers pass a config to their
// processes this way.
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

config::Document::OwnSectionsPtr sections_of_program(const std::vector<ConfigSection>& sections) {
  return sections.empty() ? nullptr : std::make_shared<const config::OwnSections>(sections);
}

std::shared_ptr<const config::Document> read_document(const std::string& path_or_json,
                                                      const config::Document::OwnSectionsPtr& own = {}) {
  if (path_or_json.empty()) throw Error(ErrorCode::kConfig, "the config's path is empty", "name the JSON file, or give its text");
  std::error_code error;
  if (begins_object(path_or_json)) return config::Document::from_text(path_or_json, "config text", own);
  if (!std::filesystem::exists(path_or_json, error)) {
    const auto decoded = decode_base64(path_or_json);
    if (decoded && begins_object(*decoded)) return config::Document::from_text(*decoded, "config in base64", own);
  }
  return config::Document::from_file(path_or_json, own);
}

}  // namespace

Config read_config(const std::string& path_or_json, const std::vector<ConfigSection>& sections) {
  return Config(read_document(path_or_json, sections_of_program(sections)));
}

Config read_config(const Dict& dictionary, const std::vector<ConfigSection>& sections) {
  return Config(config::Document::from_dict(dictionary, "code", sections_of_program(sections)));
}

Config::Config(const std::string& path_or_json) : document_(read_document(path_or_json)) {}

Config::Config(const Dict& dictionary) : document_(config::Document::from_dict(dictionary, "code")) {}

Config& Config::overwrite(const Dict& dictionary, const std::string& origin) {
  document_ = document_ ? document_->merged(dictionary, origin) : config::Document::from_dict(dictionary, origin);
  return *this;
}

}  // namespace gannet
