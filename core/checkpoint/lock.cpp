#include "checkpoint/lock.h"

#include <fcntl.h>
#include <gannet/error.h>
#include <gannet/log.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <fstream>
#include <gannet/sdk_threads.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <tuple>

#include "base/format.h"
#include "checkpoint/saved_at.h"
#include "checkpoint/value_json.h"

namespace gannet::checkpoint {
namespace {

struct Owner {
  std::string host, pid_namespace, since;
  int64_t pid = 0;
  std::string started;  // start time in clock ticks since the host's boot, since process ids are reused
};

// Field 22 of /proc/<pid>/stat, starttime (proc(5)); "" if there is no such process.
std::string start_of(int64_t pid) {
  std::ifstream in(formatted("/proc/{}/stat", pid));
  std::stringstream text;
  text << in.rdbuf();
  const std::string line = text.str();
  const size_t name_end = line.rfind(')');  // a process name may contain spaces and parentheses
  if (name_end == std::string::npos) return "";
  std::istringstream fields(line.substr(name_end + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i)
    if (!(fields >> field) || (i == 3 && field == "Z")) return "";  // a zombie holds no locks
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

bool is_of_this_host(const Owner& owner) {
  const Owner self = this_process();
  return owner.host == self.host && owner.pid_namespace == self.pid_namespace && owner.pid > 0;
}

bool surely_dead(const Owner& owner) { return is_of_this_host(owner) && start_of(owner.pid) != owner.started; }

// The lock files that this process holds, by process id (a forked child holds none of its
// parent's), device and inode.
using LockFileKey = std::tuple<pid_t, dev_t, ino_t>;
std::mutex& places_mutex() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}
std::set<LockFileKey>& places() {
  static std::set<LockFileKey>& held = *new std::set<LockFileKey>;
  return held;
}
LockFileKey place_of(int file) {
  struct stat status{};
  return ::fstat(file, &status) == 0 ? LockFileKey{::getpid(), status.st_dev, status.st_ino} : LockFileKey{};
}
bool is_held_here(int file) {
  const std::lock_guard lock(places_mutex());
  return places().contains(place_of(file));
}

timespec modified(int file) {
  struct stat status{};
  return ::fstat(file, &status) == 0 ? status.st_mtim : timespec{};
}

// Watches for a heartbeat from an owner that this process cannot see.
bool beats(const std::string& path, int file, const Owner& owner, const LockTimes& times) {
  const timespec before = modified(file);
  if (std::abs(std::difftime(std::time(nullptr), before.tv_sec)) > static_cast<double>(times.stale.count())) return false;
  log_info(formatted("{} is of process {} on host {}: watching it for {} s for a sign of life", path, owner.pid, owner.host,
                     times.watch.count() / 1000));
  const auto end = std::chrono::steady_clock::now() + times.watch;
  while (std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(
        std::min<std::chrono::milliseconds>(times.watch / 10 + std::chrono::milliseconds(1), std::chrono::milliseconds(500)));
    // Reopens, because a network file system revalidates timestamps with its server on open.
    const files::Descriptor again(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (again < 0) return false;
    const timespec now = modified(again);
    if (now.tv_sec != before.tv_sec || now.tv_nsec != before.tv_nsec) return true;
  }
  return false;
}

// Whether the recorded owner is alive. Even a lock that flock granted is trusted only after this
// check.
bool is_alive(const std::string& path, int file, const Owner& owner, const LockTimes& times) {
  if (!is_of_this_host(owner)) return owner.pid > 0 && beats(path, file, owner, times);
  if (owner.pid == ::getpid()) return is_held_here(file);  // if not held: the record is from before this process called exec
  return start_of(owner.pid) == owner.started && !owner.started.empty();
}

// On a file system without hard links, the record is written after the file is created, so it may
// still be missing.
std::optional<Owner> wait_for_owner(int file) {
  for (int turn = 0; turn < 10; ++turn) {
    if (auto owner = read_owner(file)) return owner;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return std::nullopt;
}

// Creates a lock file, flocked, with this process's record in it. It appears at `path` atomically,
// so that a newcomer never finds one without a record, however long its creator is delayed. Returns
// a closed descriptor if there is a lock file already, and nullopt if the file cannot be created or
// linked (a file system without hard links).
std::optional<files::Descriptor> make_whole(const std::string& folder, const std::string& path) {
  // Named like a staging folder, so that the next job removes it.
  static std::atomic<int> count{0};
  const std::string prepared = formatted("{}/.gannet.lock.tmp-{}-{}", folder, ::getpid(), ++count);
  ::unlink(prepared.c_str());  // left by an earlier process with this id
  files::Descriptor file(::open(prepared.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file < 0) return std::nullopt;
  const std::string text = format(this_process());
  try {
    files::write_at(file, text.data(), text.size(), 0, path);
  } catch (...) {
    ::unlink(prepared.c_str());
    throw;
  }
  (void)::flock(file, LOCK_EX | LOCK_NB);  // no other process has it open; without flock, only the record decides
  const int code = ::link(prepared.c_str(), path.c_str()) == 0 ? 0 : errno;
  ::unlink(prepared.c_str());
  if (code == EEXIST) return files::Descriptor();
  if (code != 0) return std::nullopt;
  return file;
}

[[noreturn]] void held(const std::string& folder, const std::string& path, const std::optional<Owner>& owner) {
  std::string who = "another job";
  if (owner && owner->pid == ::getpid() && owner->host == host_name())
    who = formatted("another saver of this same process ({})", owner->pid);
  else if (owner)
    who = formatted("another job (process {} on host {}, since {})", owner->pid, owner->host, owner->since);
  throw Error(ErrorCode::kUnavailable,
              formatted("{} saves checkpoints into {}; this is process {} on host {}", who, folder, ::getpid(), host_name()),
              formatted("give each job a folder of its own; a job that only reads it loads with lock_folder = false; if the "
                        "other job is gone for good, remove {}",
                        path));
}

}  // namespace

FolderLock::FolderLock(const std::string& folder, const LockTimes& times) : path_(formatted("{}/.gannet.lock", folder)) {
  for (;;) {
    std::optional<files::Descriptor> made = make_whole(folder, path_);
    const bool is_whole = made && *made >= 0;  // locked, with the record in it
    bool is_new = true;
    files::Descriptor file =
        made ? std::move(*made) : files::Descriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file < 0) {
      is_new = false;
      if (made || errno == EEXIST) {  // no O_CREAT: if the owner has removed it, that would create one without a record
        file = files::Descriptor(::open(path_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
        if (file < 0 && errno == ENOENT) continue;
      }
      if (file < 0) file = files::open_file(path_, O_RDWR | O_CREAT | O_NONBLOCK);
      struct stat status{};
      if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode))
        throw Error(ErrorCode::kIo, formatted("{} is not a regular file", path_), "remove it");
    }
    const bool locked = is_whole || ::flock(file, LOCK_EX | LOCK_NB) == 0;
    if (!locked) {
      const int code = errno;
      if (code == EINTR) continue;
      const std::optional<Owner> owner = read_owner(file);
      const bool works = code == EWOULDBLOCK;
      if (works ? !owner || !surely_dead(*owner) : owner && !surely_dead(*owner)) held(folder, path_, owner);
      if (works) {  // held by a child of the dead job: it keeps this file, and the folder gets a new one
        if (::unlink(path_.c_str()) != 0 && errno != ENOENT) files::io_failed("remove the lock of a dead job", path_, errno);
        continue;
      }
    } else if (!is_new) {
      const std::optional<Owner> owner = wait_for_owner(file);
      if (owner && is_alive(path_, file, *owner, times)) held(folder, path_, owner);
    }
    // Another job may have removed the file between the open and the flock, which then locked an
    // unlinked file.
    struct stat here{}, there{};
    if (::fstat(file, &here) != 0 || ::stat(path_.c_str(), &there) != 0 || here.st_ino != there.st_ino ||
        here.st_dev != there.st_dev)
      continue;
    if (!is_whole) {
      const std::string text = format(this_process());
      if (::ftruncate(file, 0) != 0) files::io_failed("write", path_, errno);
      files::write_at(file, text.data(), text.size(), 0, path_);
      // If flock is only local, two jobs may take over a dead job's lock at the same time. The last
      // record written then wins.
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      const std::optional<Owner> owner = read_owner(file);
      if (!owner || owner->pid != ::getpid() || owner->host != host_name()) held(folder, path_, owner);
    }
    file_ = std::move(file);
    process_ = ::getpid();
    start_heartbeat(times.heartbeat);
    const std::lock_guard lock(places_mutex());
    places().insert(place_of(file_));
    return;
  }
}

// The heartbeat runs on a separate thread with signals blocked, because a step may last longer than
// a newcomer watches.
void FolderLock::start_heartbeat(std::chrono::milliseconds period) {
  const sdk::BlockSignals blocked;
  heartbeat_ = std::thread([this, period] {
    ::pthread_setname_np(::pthread_self(), "gannet-lock");
    std::unique_lock lock(mutex_);
    while (!ended_.wait_for(lock, period, [this] { return is_ending_; }))
      ::futimens(file_, nullptr);  // errors are ignored; only a newcomer that cannot see this process relies on this time
  });
}

FolderLock::~FolderLock() {
  if (process_ != ::getpid()) {  // the thread exists only in the parent
    if (heartbeat_.joinable()) heartbeat_.detach();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  ended_.notify_all();
  if (heartbeat_.joinable()) heartbeat_.join();
  {
    const std::lock_guard lock(places_mutex());
    places().erase(place_of(file_));
  }
  struct stat here{}, there{};
  const bool ours = ::fstat(file_, &here) == 0 && ::stat(path_.c_str(), &there) == 0 && here.st_ino == there.st_ino;
  if (ours) ::unlink(path_.c_str());  // removed while it is still locked
}

bool is_locked_here(const std::string& folder) {
  struct stat status{};
  if (::stat((formatted("{}/.gannet.lock", folder)).c_str(), &status) != 0) return false;
  const std::lock_guard lock(places_mutex());
  return places().contains({::getpid(), status.st_dev, status.st_ino});
}

}  // namespace gannet::checkpoint
