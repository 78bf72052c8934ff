#include "launch/hostfile.h"

#include <gannet/error.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>

#include "base/format.h"
#include "base/text.h"

namespace gannet::launch {
namespace {

constexpr const char* kSlots = "slots=";

// The number in "slots=4"; throws if the word is anything else.
uint32_t slots_in(const std::string& word, const std::string& where, const std::string& line) {
  const std::string digits = word.rfind(kSlots, 0) == 0 ? word.substr(std::string(kSlots).size()) : "";
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos)
    throw Error(ErrorCode::kArgument, formatted("{}: '{}' is not a line of a hostfile", where, printable(line)),
                "write 'NAME slots=N', without spaces around '='");
  if (digits.size() > 4 || std::stoul(digits) > kMostSlots)
    throw Error(ErrorCode::kArgument, formatted("{}: {} slots", where, digits), formatted("a host has at most {}", kMostSlots));
  return static_cast<uint32_t>(std::stoul(digits));
}

}  // namespace

std::vector<uint32_t> slots_up_to(uint32_t count) {
  std::vector<uint32_t> slots(count);
  for (uint32_t i = 0; i < count; ++i) slots[i] = i;
  return slots;
}

std::string text_of(const std::vector<uint32_t>& slots, const char* between) {
  std::vector<std::string> numbers;
  for (const uint32_t slot : slots) numbers.push_back(std::to_string(slot));
  return join(numbers, between);
}

std::vector<Host> parse_hostfile(const std::string& text, const std::string& file) {
  std::vector<Host> hosts;
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // written by some editors
  std::istringstream lines(text.rfind(kByteOrderMark, 0) == 0 ? text.substr(kByteOrderMark.size()) : text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line);
    std::string name, slots;
    if (!(words >> name) || name[0] == '#') continue;
    words >> slots;
    const std::string where = formatted("{}, line {}", file, number);
    const uint32_t count = slots_in(slots, where, line);
    if (name[0] == '-')
      throw Error(ErrorCode::kArgument, formatted("{}: '{}' is not a valid host name", where, printable(name)),
                  "a name starts with a letter or a digit");
    if (std::any_of(hosts.begin(), hosts.end(), [&](const Host& host) { return host.name == name; }))
      throw Error(ErrorCode::kArgument, formatted("{}: {} is listed twice", where, printable(name)),
                  "give each host one line, with all of its slots");
    hosts.push_back({name, slots_up_to(count)});
  }
  if (hosts.empty())
    throw Error(ErrorCode::kArgument, formatted("{} has no host", file), "write a line 'NAME slots=N' for each machine");
  return hosts;
}

std::vector<Host> read_hostfile(const std::string& file) {
  std::ifstream stream(file);
  std::ostringstream text;
  if (!stream || !(text << stream.rdbuf()))
    throw Error(ErrorCode::kNotFound, formatted("the hostfile '{}' is missing, empty, or cannot be read", printable(file)),
                "check --hostfile; to train only on this machine, leave it out");
  return parse_hostfile(text.str(), file);
}

}  // namespace gannet::launch
