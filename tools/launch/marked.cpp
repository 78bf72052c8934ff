#include "launch/marked.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <random>

#include "base/format.h"

namespace gannet::launch {
namespace {

bool contains(const char* file, const std::string& text) {
  const int descriptor = open(file, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return false;
  static char part[64 * 1024];
  size_t kept = 0;  // bytes kept from the end of the previous part, since the text may cross the boundary
  bool found = false;
  while (!found) {
    const ssize_t got = read(descriptor, part + kept, sizeof part - kept);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    const size_t size = kept + static_cast<size_t>(got);
    found = memmem(part, size, text.data(), text.size()) != nullptr;
    kept = size < text.size() ? size : text.size() - 1;
    memmove(part, part + size - kept, kept);
  }
  close(descriptor);
  return found;
}

}  // namespace

std::string new_mark() {
  std::random_device random;
  std::string mark;
  for (int i = 0; i < 32; ++i) mark += "0123456789abcdef"[random() % 16];
  return mark;
}

std::vector<pid_t> marked_processes(const std::string& mark) {
  std::vector<pid_t> found;
  DIR* folder = opendir("/proc");
  if (!folder) return found;
  while (const dirent* entry = readdir(folder)) {
    char* end = nullptr;
    const long pid = std::strtol(entry->d_name, &end, 10);
    if (*end != '\0' || pid <= 0 || pid == getpid()) continue;
    if (contains((formatted("/proc/{}/environ", pid)).c_str(), mark)) found.push_back(static_cast<pid_t>(pid));
  }
  closedir(folder);
  return found;
}

std::string program_of(pid_t pid) {
  char name[64] = "";
  const int descriptor = open((formatted("/proc/{}/comm", pid)).c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return "";
  const ssize_t got = read(descriptor, name, sizeof name - 1);
  close(descriptor);
  return got > 1 ? std::string(name, static_cast<size_t>(got - 1)) : "";
}

}  // namespace gannet::launch
