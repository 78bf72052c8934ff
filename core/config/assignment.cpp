#include "config/assignment.h"

#include <gannet/error.h>

#include <charconv>

#include "base/format.h"
#include "base/text.h"
#include "config/parse.h"

namespace gannet::config {
namespace {

Value value_of(const std::string& text, const std::string& assignment) {
  if (text == "true" || text == "false") return text == "true";
  if (text == "null") return nullptr;
  const char* end = text.data() + text.size();
  int64_t integer = 0;
  if (const auto [rest, failed] = std::from_chars(text.data(), end, integer); failed == std::errc() && rest == end)
    return integer;
  double number = 0;
  if (const auto [rest, failed] = std::from_chars(text.data(), end, number); failed == std::errc() && rest == end) return number;
  if (text.empty() || std::string("[{\"").find(text[0]) == std::string::npos) return text;
  try {
    return *parse_text(formatted("{{\"value\":{}}}", text), "--set").root.find("value");
  } catch (const Error& error) {
    throw Error(ErrorCode::kArgument, formatted("--set '{}': the value is not JSON ({})", assignment, error.message()),
                "write it as in the file, in quotes for the shell: --set 'optimizer.params.betas=[0.9, 0.98]'");
  }
}

}  // namespace

void assign(Dict& overrides, const std::string& assignment) {
  const size_t equals = assignment.find('=');
  const auto path = split(std::string_view(assignment).substr(0, std::min(equals, assignment.size())), '.');
  if (equals == std::string::npos || path.empty())
    throw Error(ErrorCode::kArgument, formatted("--set '{}' is not an assignment", assignment),
                "write --set optimizer.params.lr=3e-4");
  Dict* dict = &overrides;
  for (size_t i = 0; i + 1 < path.size(); ++i) {
    Value& member = (*dict)[path[i]];
    if (!member.is_dict()) member = Dict();
    dict = &member.as_dict();
  }
  (*dict)[path.back()] = value_of(assignment.substr(equals + 1), assignment);
}

}  // namespace gannet::config
