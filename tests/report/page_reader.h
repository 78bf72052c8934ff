// Reads back a page of the report.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace gannet::test {

// The data that the page's script draws.
inline nlohmann::json data_of(const std::string& page) {
  const std::string before = "id=\"data\">";
  const size_t begin = page.find(before) + before.size();
  return nlohmann::json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

// The page without the library that is embedded in it.
inline std::string without_library(const std::string& page) {
  const size_t begin = page.find("/*\ndygraphs");
  return page.substr(0, begin) + page.substr(page.find("</script>", begin));
}

inline size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

}  // namespace gannet::test
