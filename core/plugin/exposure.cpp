#include "plugin/exposure.h"

#include <sys/stat.h>

#include <cstdio>
#include <deque>
#include <filesystem>

#include "base/format.h"

namespace gannet::plugin {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;  // the kernel's limit

std::string judge(const fs::path& path, const struct stat& status) {
  const bool is_folder = S_ISDIR(status.st_mode);
  if (!(status.st_mode & S_IWOTH) || (is_folder && status.st_mode & S_ISVTX)) return "";
  char mode[8];
  std::snprintf(mode, sizeof(mode), "%04o", static_cast<unsigned>(status.st_mode & 07777));
  return formatted("{}{} may be written by every user (mode {})", is_folder ? "the folder " : "the file ", path.string(), mode);
}

void put_in_front(std::deque<std::string>& rest, const fs::path& path) {
  const fs::path relative = path.relative_path();
  rest.insert(rest.begin(), relative.begin(), relative.end());
}

}  // namespace

std::string exposure(const std::string& path) {
  std::error_code failed;
  std::deque<std::string> rest;
  put_in_front(rest, fs::absolute(path, failed));
  fs::path at = "/";  // the resolved path so far, which is never a link
  struct stat status{};
  if (::stat("/", &status) == 0)
    if (std::string reason = judge(at, status); !reason.empty()) return reason;
  for (int links = 0; !rest.empty();) {
    const std::string name = rest.front();
    rest.pop_front();
    if (name.empty() || name == ".") continue;
    if (name == "..") {
      at = at.parent_path();
      continue;
    }
    const fs::path next = at / name;
    if (::lstat(next.c_str(), &status) != 0) return "";
    if (S_ISLNK(status.st_mode)) {  // a link's own mode is meaningless
      const fs::path target = fs::read_symlink(next, failed);
      if (failed || ++links > kMostLinks) return "";
      if (target.is_absolute()) at = "/";
      put_in_front(rest, target);
      continue;
    }
    if (std::string reason = judge(next, status); !reason.empty()) return reason;
    at = next;
  }
  return "";
}

}  // namespace gannet::plugin
