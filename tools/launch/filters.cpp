#include "launch/filters.h"

#include <gannet/error.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/format.h"
#include "base/text.h"

namespace gannet::launch {
namespace {

// The slots that a filter names on each host; an empty set: all of them.
using Named = std::map<std::string, std::set<uint32_t>>;

[[noreturn]] void refuse(const std::string& option, const std::string& part) {
  throw Error(ErrorCode::kArgument, formatted("{}: '{}' is not NAME or NAME:SLOT,SLOT", option, printable(part)),
              "an example: --include worker-1@worker-2:0,2");
}

uint32_t slot_in(const std::string& option, const std::string& part, const std::string& digits) {
  if (digits.empty() || digits.size() > 4 || digits.find_first_not_of("0123456789") != std::string::npos) refuse(option, part);
  return static_cast<uint32_t>(std::stoul(digits));
}

// Parts between separators, empty ones too, which base/text.h's split() drops.
std::vector<std::string> parts_of(const std::string& text, char separator) {
  std::vector<std::string> parts{""};
  for (const char letter : text)
    if (letter == separator)
      parts.emplace_back();
    else
      parts.back() += letter;
  return parts;
}

// The nodes of a filter: parts between '@', except for an '@' in a host's name (user@host).
std::vector<std::string> nodes_of(const std::string& text, const std::vector<Host>& hosts) {
  std::vector<std::string> nodes;
  for (size_t start = 0;;) {
    size_t name = 0;
    for (const Host& host : hosts) {
      const size_t end = start + host.name.size();
      const bool is_whole = end == text.size() || (end < text.size() && (text[end] == '@' || text[end] == ':'));
      if (is_whole && text.compare(start, host.name.size(), host.name) == 0) name = std::max(name, host.name.size());
    }
    const size_t end = text.find('@', start + name);
    nodes.push_back(text.substr(start, end == std::string::npos ? end : end - start));
    if (end == std::string::npos) return nodes;
    start = end + 1;
  }
}

// A node's name, and its slots unless all of them are meant. A host's name may have a ':' (IPv6).
std::pair<std::string, std::optional<std::string>> fields_of(const std::string& node, const std::vector<Host>& hosts) {
  const auto is_name = [&](const std::string& text) {
    return std::any_of(hosts.begin(), hosts.end(), [&](const Host& host) { return host.name == text; });
  };
  const size_t colon = node.rfind(':');
  if (colon == std::string::npos || is_name(node)) return {node, std::nullopt};
  return {node.substr(0, colon), node.substr(colon + 1)};
}

Named parse(const std::string& option, const std::string& text, const std::vector<Host>& hosts, bool any_slot) {
  Named named;
  std::set<std::string> whole;
  for (const std::string& part : nodes_of(text, hosts)) {
    const auto [name, chosen] = fields_of(part, hosts);
    const auto host = std::find_if(hosts.begin(), hosts.end(), [&, &name = name](const Host& one) { return one.name == name; });
    if (name.empty() || (host == hosts.end() && name.find(':') != std::string::npos)) refuse(option, part);
    if (host == hosts.end()) {
      std::vector<std::string> names;
      for (const Host& one : hosts) names.push_back(one.name);
      throw Error(ErrorCode::kArgument,
                  formatted("{}: there is no host '{}'{}", option, printable(name), did_you_mean(name, names)),
                  formatted("the hosts are {}", join(names, ", ")));
    }
    std::set<uint32_t>& slots = named[host->name];
    if (!chosen) {
      whole.insert(host->name);
      continue;
    }
    for (const std::string& digits : parts_of(*chosen, ',')) {
      const uint32_t slot = slot_in(option, part, digits);
      if (!any_slot && std::find(host->slots.begin(), host->slots.end(), slot) == host->slots.end())
        throw Error(ErrorCode::kArgument, formatted("{}: {} has no slot {}", option, host->name, slot),
                    host->slots.empty() ? "it has none" : formatted("its slots are {}", text_of(host->slots)));
      slots.insert(slot);
    }
  }
  for (const std::string& name : whole) named[name].clear();
  return named;
}

}  // namespace

std::vector<Host> filtered(const std::vector<Host>& hosts, const std::string& include, const std::string& exclude,
                           bool any_slot) {
  if (!include.empty() && !exclude.empty())
    throw Error(ErrorCode::kArgument, "--include and --exclude together", "give one of the two: what is left is the same");
  const bool includes = !include.empty();
  const Named named = includes           ? parse("--include", include, hosts, any_slot)
                      : !exclude.empty() ? parse("--exclude", exclude, hosts, any_slot)
                                         : Named();
  std::vector<Host> left;
  for (const Host& host : hosts) {
    const auto found = named.find(host.name);
    Host kept{host.name, {}};
    if (found == named.end()) {
      if (!includes) kept.slots = host.slots;
    } else if (includes) {
      kept.slots = found->second.empty() ? host.slots : std::vector<uint32_t>(found->second.begin(), found->second.end());
    } else if (!found->second.empty()) {
      for (const uint32_t slot : host.slots)
        if (!found->second.count(slot)) kept.slots.push_back(slot);
    }
    if (!kept.slots.empty()) left.push_back(kept);
  }
  return left;
}

}  // namespace gannet::launch
