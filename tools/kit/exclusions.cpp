#include "kit/exclusions.h"

#include <gannet/error.h>

#include <algorithm>
#include <fstream>

#include "base/format.h"
#include "base/text.h"

namespace gannet::kit {

std::map<std::string, std::string> read_exclusions(const std::string& path, const std::vector<std::string>& known) {
  std::map<std::string, std::string> excluded;
  if (path.empty()) return excluded;
  std::ifstream file(path);
  if (!file) throw Error(ErrorCode::kNotFound, formatted("cannot read the exclusions {}", printable(path)));
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos || line[begin] == '#') continue;
    const size_t end = line.find_first_of(" \t", begin);
    const std::string name = line.substr(begin, end == std::string::npos ? end : end - begin);
    const size_t reason = end == std::string::npos ? end : line.find_first_not_of(" \t\r", end);
    const std::string where = formatted("{}:{}", printable(path), number);
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw Error(ErrorCode::kArgument,
                  formatted("{}: there is no check '{}'{}", where, printable(name), did_you_mean(name, known)),
                  formatted("its checks are: {}", join(known, ", ")));
    if (reason == std::string::npos)
      throw Error(ErrorCode::kArgument, formatted("{}: '{}' is excluded without a reason", where, name),
                  "write it after the name: the report prints it");
    excluded[name] = line.substr(reason, line.find_last_not_of(" \t\r") + 1 - reason);
  }
  return excluded;
}

}  // namespace gannet::kit
