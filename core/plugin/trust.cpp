#include "plugin/trust.h"

#include <fcntl.h>
#include <gannet/error.h>
#include <sha2.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/format.h"
#include "base/text.h"
#include "plugin/exposure.h"

namespace gannet::plugin {
namespace {

namespace fs = std::filesystem;

constexpr size_t kDigits = 2 * SHA256_DIGEST_LENGTH;

bool is_hash(std::string_view text) {
  return text.size() == kDigits &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

// Parses "HASH  FILE" or "HASH *FILE", the formats in which sha256sum writes text and binary files.
TrustedFile parsed(const std::string& line, const std::string& where) {
  const std::string hash = lower(line.substr(0, line.find(' ')));
  const bool has_file =
      line.size() > kDigits + 2 && line[kDigits] == ' ' && (line[kDigits + 1] == ' ' || line[kDigits + 1] == '*');
  if (!is_hash(hash) || !has_file)
    throw Error(ErrorCode::kPlugin,
                formatted("{}: expected a SHA-256 of {} hexadecimal digits, two spaces and a file, found '{}'", where, kDigits,
                          printable(line)),
                "correct or delete the line; `gannet plugins trust FILE` writes one");
  return {hash, line.substr(kDigits + 2)};
}

[[noreturn]] void cannot_write(const std::string& path, int failure) {
  throw Error(ErrorCode::kIo,
              formatted("cannot write the list of trusted plugins {}: {}", printable(path), std::strerror(failure)),
              "name another list with --trusted, and in the config's \"plugins\": {\"trusted\": ...}");
}

// Locks the list by locking its folder, so no lock file is left behind, and the lock ends with the
// process.
std::shared_ptr<void> lock_folder_of(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  std::error_code failed;
  fs::create_directories(folder, failed);
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) cannot_write(path, errno);
  std::shared_ptr<void> lock(nullptr, [descriptor](void*) { ::close(descriptor); });
  while (::flock(descriptor, LOCK_EX) != 0)
    if (errno != EINTR) cannot_write(path, errno);
  return lock;
}

}  // namespace

std::string sha256(std::string_view bytes) {
  SHA2_CTX state;
  uint8_t digest[SHA256_DIGEST_LENGTH];
  SHA256Init(&state);
  SHA256Update(&state, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  SHA256Final(digest, &state);
  std::string text;
  for (const uint8_t byte : digest)
    for (const int digit : {byte >> 4, byte & 15}) text += "0123456789abcdef"[digit];
  return text;
}

std::string own_trust_list() {
  const char* config = std::getenv("XDG_CONFIG_HOME");
  if (config && *config == '/') return formatted("{}/gannet/trusted_plugins", config);  // XDG: ignore a relative path
  const char* home = std::getenv("HOME");
  if (home && *home) return formatted("{}/.config/gannet/trusted_plugins", home);
  throw Error(ErrorCode::kPlugin,
              "the list of trusted plugins is in the user's home, and neither XDG_CONFIG_HOME nor HOME is set",
              "set HOME, or name a file: \"plugins\": {\"trusted\": \"FILE\"}, `gannet plugins trust --trusted FILE`");
}

TrustList TrustList::read_or_empty(const std::string& trusted) {
  TrustList list;
  list.is_own_ = trusted == "true";
  list.path_ = list.is_own_ ? own_trust_list() : fs::absolute(trusted).string();
  std::error_code failed;
  const auto status = fs::status(list.path_, failed);
  if (!fs::exists(status)) return list;
  if (!fs::is_regular_file(status))
    throw Error(ErrorCode::kPlugin, formatted("the list of trusted plugins {} is not a regular file", printable(list.path_)),
                "name a file");
  // Checked before the list is read: anyone who can write to the list decides which plugins are
  // trusted.
  if (const std::string reason = exposure(list.path_); !reason.empty())
    throw Error(ErrorCode::kPlugin,
                formatted("the list of trusted plugins {} is not used: {}", printable(list.path_), printable(reason)),
                "take the right away (`chmod o-w`) and look at what the list has: `gannet plugins trust --list`");
  std::ifstream file(list.path_);
  size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (!line.empty() && line[0] != '#') list.files_.push_back(parsed(line, formatted("{}:{}", printable(list.path_), number)));
  }
  if (!file.eof())
    throw Error(ErrorCode::kIo,
                formatted("the list of trusted plugins {} cannot be read: {}", printable(list.path_), std::strerror(errno)));
  return list;
}

TrustList TrustList::read_to_change(const std::string& trusted) {
  auto lock = lock_folder_of(trusted == "true" ? own_trust_list() : fs::absolute(trusted).string());
  TrustList list = read_or_empty(trusted);
  list.lock_ = std::move(lock);
  return list;
}

TrustList TrustList::read(const std::string& trusted) {
  TrustList list = read_or_empty(trusted);
  std::error_code failed;
  if (!fs::exists(list.path_, failed))
    throw Error(ErrorCode::kPlugin,
                formatted("there is no list of trusted plugins {}, which the config's \"plugins\": {{\"trusted\": ...}} asks for",
                          printable(list.path_)),
                formatted("make it: `{} FILE...`, with every plugin of the run, Gannet's own too", list.command()));
  return list;
}

std::string TrustList::command() const {
  return formatted("gannet plugins trust{}", is_own_ ? "" : formatted(" --trusted {}", printable(path_)));
}

void TrustList::require_hash(const std::string& file, const std::string& hash) const {
  bool was_listed = false;
  for (const TrustedFile& trusted : files_) {
    if (trusted.hash == hash) return;
    was_listed = was_listed || trusted.file == file;
  }
  throw Error(ErrorCode::kPlugin,
              formatted("plugin {} {}: its SHA-256, {}, is not in {}", printable(file),
                        was_listed ? "has changed since it was trusted" : "is not trusted", hash, printable(path_)),
              formatted("if you know where it comes from: `{} {}`", command(), printable(file)));
}

void TrustList::add(const std::string& hash, const std::string& file) {
  std::erase_if(files_, [&](const TrustedFile& one) { return one.file == file; });
  files_.push_back({hash, file});
}

bool TrustList::remove(const std::string& hash_or_file) {
  return std::erase_if(files_, [&](const TrustedFile& one) { return one.file == hash_or_file || one.hash == hash_or_file; }) > 0;
}

void TrustList::write() const {
  const std::string fresh = path_ + ".new";
  const int descriptor = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (descriptor < 0) cannot_write(fresh, errno);
  ::fchmod(descriptor, 0644);  // despite the umask: a list that others may write to is not used
  std::string text =
      "# Plugins that may be opened where a config has \"plugins\": {\"trusted\": ...}; see `gannet plugins trust`.\n";
  for (const TrustedFile& one : files_) text += formatted("{}  {}\n", one.hash, one.file);
  const char* at = text.data();
  for (size_t left = text.size(); left > 0;) {
    const ssize_t done = ::write(descriptor, at, left);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) {
      const int failure = errno;
      ::close(descriptor);
      ::unlink(fresh.c_str());
      cannot_write(path_, failure);
    }
    at += done;
    left -= static_cast<size_t>(done);
  }
  const bool is_written = ::fsync(descriptor) == 0;
  if (const int failure = errno; ::close(descriptor) != 0 || !is_written || ::rename(fresh.c_str(), path_.c_str()) != 0) {
    const int reason = is_written ? errno : failure;
    ::unlink(fresh.c_str());
    cannot_write(path_, reason);
  }
}

}  // namespace gannet::plugin
