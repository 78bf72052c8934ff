#include "checkpoint/lock.h"

#include <fcntl.h>
#include <gannet/error.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <optional>
#include <sstream>

#include "checkpoint/saved_at.h"
#include "checkpoint/value_json.h"

namespace gannet::checkpoint {
namespace {

struct Owner {
  std::string host, pid_namespace, since;
  int64_t pid = 0;
  std::string started;  // in clock ticks since the host's boot: a process id may be another's by now
};

std::string start_of(int64_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::stringstream text;
  text << in.rdbuf();
  const std::string line = text.str();
  const size_t name_end = line.rfind(')');  // a process's name may hold spaces and parentheses
  if (name_end == std::string::npos) return "";
  std::istringstream fields(line.substr(name_end + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i)
    if (!(fields >> field) || (i == 3 && field == "Z")) return "";  // a zombie holds nothing any more
  return field;
}

std::string link_target(const char* path) {
  char text[256];
  const ssize_t size = ::readlink(path, text, sizeof(text));
  return size > 0 ? std::string(text, size) : "";
}

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

Owner this_process() { return {host_name(), link_target("/proc/self/ns/pid"), utc_now(), ::getpid(), start_of(::getpid())}; }

std::string format(const Owner& owner) {
  return Json{{"host", owner.host},
              {"pid", owner.pid},
              {"started", owner.started},
              {"pid_namespace", owner.pid_namespace},
              {"since", owner.since}}
             .dump() +
         "\n";
}

std::optional<Owner> read_owner(int file) {
  char text[2048];
  const ssize_t size = ::pread(file, text, sizeof(text), 0);
  const Json json = Json::parse(std::string_view(text, size > 0 ? size : 0), nullptr, false);
  if (!json.is_object()) return std::nullopt;
  auto string = [&](const char* key) { return json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : ""; };
  const int64_t pid = json.contains("pid") && json["pid"].is_number_integer() ? json["pid"].get<int64_t>() : 0;
  return Owner{string("host"), string("pid_namespace"), string("since"), pid, string("started")};
}

bool surely_dead(const Owner& owner) {
  const Owner self = this_process();
  if (owner.host != self.host || owner.pid_namespace != self.pid_namespace || owner.pid <= 0) return false;
  return start_of(owner.pid) != owner.started;
}

[[noreturn]] void held(const std::string& folder, const std::string& path, const std::optional<Owner>& owner) {
  std::string who = "another job";
  if (owner && owner->pid == ::getpid() && owner->host == host_name())
    who = "another saver of this same process (" + std::to_string(owner->pid) + ")";
  else if (owner)
    who = "another job (process " + std::to_string(owner->pid) + " on host " + owner->host + ", since " + owner->since + ")";
  throw Error(
      ErrorCode::kUnavailable,
      who + " saves checkpoints into " + folder + "; this is process " + std::to_string(::getpid()) + " on host " + host_name(),
      "give each job a folder of its own; if that job is gone for good, remove " + path);
}

}  // namespace

FolderLock::FolderLock(const std::string& folder) : path_(folder + "/.gannet.lock") {
  for (;;) {
    Descriptor file = open_file(path_, O_RDWR | O_CREAT);
    const bool locked = ::flock(file, LOCK_EX | LOCK_NB) == 0;
    if (!locked) {
      const int code = errno;
      if (code == EINTR) continue;
      const std::optional<Owner> owner = read_owner(file);
      const bool works = code == EWOULDBLOCK;
      if (works ? !owner || !surely_dead(*owner) : owner && !surely_dead(*owner)) held(folder, path_, owner);
      if (works) {  // by a child of the dead job: this file stays with it, the folder gets a new one
        if (::unlink(path_.c_str()) != 0 && errno != ENOENT) io_failed("remove the lock of a dead job", path_, errno);
        continue;
      }
    }
    // Another job may have removed the file between our open and our lock: then what we hold is no one's door.
    struct stat here {
    }, there{};
    if (::fstat(file, &here) != 0 || ::stat(path_.c_str(), &there) != 0 || here.st_ino != there.st_ino ||
        here.st_dev != there.st_dev)
      continue;
    const std::string text = format(this_process());
    if (::ftruncate(file, 0) != 0) io_failed("write", path_, errno);
    write_at(file, text.data(), text.size(), 0, path_);
    file_ = std::move(file);
    process_ = ::getpid();
    return;
  }
}

FolderLock::~FolderLock() {
  struct stat here {
  }, there{};
  const bool ours =
      process_ == ::getpid() && ::fstat(file_, &here) == 0 && ::stat(path_.c_str(), &there) == 0 && here.st_ino == there.st_ino;
  if (ours) ::unlink(path_.c_str());  // while it is still locked
}

}  // namespace gannet::checkpoint
