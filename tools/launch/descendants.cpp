#include "launch/descendants.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>

#include "base/format.h"
#include "launch/marked.h"

namespace gannet::launch {
namespace {

// "S 12 ...": the state and the parent of a process; "" if there is none.
std::string state_and_parent(pid_t pid) {
  char text[512];
  const int descriptor = open((formatted("/proc/{}/stat", pid)).c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return "";
  const ssize_t got = read(descriptor, text, sizeof text - 1);
  close(descriptor);
  if (got <= 0) return "";
  text[got] = '\0';
  const char* after = std::strrchr(text, ')');  // pid (name) state parent ...; the name may hold anything
  return after && std::strlen(after) >= 4 ? after + 2 : "";
}

// The parent of a running process; 0 if it has ended.
pid_t parent_of(pid_t pid) {
  const std::string text = state_and_parent(pid);
  if (text.empty() || text[0] == 'Z' || text[0] == 'X') return 0;
  return static_cast<pid_t>(std::strtol(text.c_str() + 2, nullptr, 10));
}

}  // namespace

char state_of(pid_t pid) {
  const std::string text = state_and_parent(pid);
  return text.empty() ? '\0' : text[0];
}

std::vector<pid_t> descendants_of(pid_t root, const std::vector<pid_t>& excluded) {
  std::multimap<pid_t, pid_t> children;
  DIR* folder = opendir("/proc");
  if (!folder) return {};
  while (const dirent* entry = readdir(folder)) {
    char* end = nullptr;
    const long pid = std::strtol(entry->d_name, &end, 10);
    if (*end != '\0' || pid <= 0) continue;
    if (const pid_t parent = parent_of(static_cast<pid_t>(pid))) children.emplace(parent, static_cast<pid_t>(pid));
  }
  closedir(folder);
  std::vector<pid_t> found;
  std::vector<pid_t> open = {root};
  while (!open.empty()) {
    const auto [first, last] = children.equal_range(open.back());
    open.pop_back();
    for (auto child = first; child != last; ++child) {
      if (std::find(excluded.begin(), excluded.end(), child->second) != excluded.end()) continue;
      found.push_back(child->second);
      open.push_back(child->second);
    }
  }
  return found;
}

void end_all_below(const std::vector<pid_t>& excluded, const std::string& mark) {
  // Several passes, because a killed process may just have started another.
  for (int pass = 0; pass < 100; ++pass) {
    auto left = descendants_of(getpid(), excluded);
    const auto marked = marked_processes(mark);
    left.insert(left.end(), marked.begin(), marked.end());
    if (left.empty()) return;
    for (const pid_t pid : left) kill(pid, SIGKILL);
    usleep(10'000);
  }
}

}  // namespace gannet::launch
