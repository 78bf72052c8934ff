#include "launch/env_file.h"

#include <gannet/error.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <sstream>
#include <string_view>

#include "base/format.h"
#include "base/text.h"

namespace gannet::launch {
namespace {

constexpr std::array<std::string_view, 10> kSetForEachRank = {
    "RANK",       "LOCAL_RANK", "WORLD_SIZE",  "LOCAL_SIZE",  "LOCAL_WORLD_SIZE",
    "CROSS_RANK", "CROSS_SIZE", "MASTER_ADDR", "MASTER_PORT", "GANNET_RESTART"};
constexpr const char* kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";

bool is_name(const std::string& text) {
  return !text.empty() && text.find_first_not_of(kLetters) == std::string::npos && (text[0] < '0' || text[0] > '9');
}

std::string stripped(const std::string& text) {
  constexpr const char* kSpace = " \t\r\f\v";
  const size_t first = text.find_first_not_of(kSpace);
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::string name_of(const std::string& entry) { return entry.substr(0, entry.find('=')); }

}  // namespace

Exports parse_env_file(const std::string& text, const std::string& file, std::vector<std::string>& notes) {
  Exports exports;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    line = stripped(line);
    if (line.empty() || line[0] == '#') continue;
    const size_t equals = line.find('=');
    const std::string name = equals == std::string::npos ? "" : stripped(line.substr(0, equals));
    if (!is_name(name))
      throw Error(ErrorCode::kArgument, formatted("{}, line {}: '{}' is not NAME=VALUE", file, number, printable(line)),
                  "write NAME=VALUE, without export before it; begin a comment with #");
    const std::string value = stripped(line.substr(equals + 1));
    if (value.size() > 1 && (value.front() == '"' || value.front() == '\'') && value.back() == value.front())
      notes.push_back(
          formatted("{}, line {}: the quotes are part of {}'s value, since no shell reads this file", file, number, name));
    exports.emplace_back(name, value);
  }
  return exports;
}

Exports read_env_files(const std::string& home, const std::string& named, std::vector<std::string>& notes) {
  const std::string name = named.empty() ? ".deepspeed_env" : named;
  std::vector<std::string> files = {name};
  if (name[0] != '/' && !home.empty()) files.insert(files.begin(), formatted("{}/{}", home, name));
  Exports exports;
  bool is_found = false;
  for (const std::string& file : files) {
    std::ifstream stream(file);
    if (!stream) continue;
    std::ostringstream text;
    text << stream.rdbuf();
    const Exports more = parse_env_file(text.str(), file, notes);
    exports.insert(exports.end(), more.begin(), more.end());
    notes.push_back(formatted("{}: {} variable{} on every host", file, more.size(), more.size() == 1 ? "" : "s"));
    is_found = true;
  }
  if (!is_found && !named.empty())
    throw Error(ErrorCode::kNotFound, formatted("DS_ENV_FILE names '{}', which is missing", printable(named)),
                "it is searched in the home folder and in the current one; unset DS_ENV_FILE to do without");
  return exports;
}

std::pair<std::string, std::string> export_of(const std::string& option, const std::vector<std::string>& environment) {
  const std::string name = name_of(option);
  if (!is_name(name))
    throw Error(ErrorCode::kArgument,
                formatted("--env {}: '{}' is not a valid variable name", printable(option), printable(name)),
                "write --env NAME=VALUE, or --env NAME for the value that it has here");
  if (option.size() > name.size()) return {name, option.substr(name.size() + 1)};
  for (const std::string& entry : environment)
    if (name_of(entry) == name) return {name, entry.substr(name.size() + 1)};
  throw Error(ErrorCode::kArgument, formatted("--env {}: it is not set here", name), formatted("write --env {}=VALUE", name));
}

std::vector<std::string> with_exports(const std::vector<std::string>& environment, const Exports& exports) {
  std::map<std::string, std::string> last;
  for (const auto& [name, value] : exports) {
    if (std::find(kSetForEachRank.begin(), kSetForEachRank.end(), name) != kSetForEachRank.end())
      throw Error(ErrorCode::kArgument, formatted("{} cannot be chosen for all ranks: gannet run sets it for each", name),
                  "leave it out of --env and .deepspeed_env; --master_addr and --master_port are options");
    last[name] = value;
  }
  std::vector<std::string> result;
  for (const std::string& entry : environment)
    if (!last.count(name_of(entry))) result.push_back(entry);
  for (const auto& [name, value] : last) result.push_back(formatted("{}={}", name, value));
  return result;
}

}  // namespace gannet::launch
