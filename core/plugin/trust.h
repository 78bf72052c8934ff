// The list of trusted plugin files, identified by the SHA-256 of their bytes. A config names the
// list in "plugins": {"trusted": ...}, and `gannet plugins trust` maintains it.
//
// The list has the format of sha256sum(1), "HASH  FILE" on each line; `#` begins a comment. A file
// is trusted for its content, regardless of its path. The path in the list is for human readers,
// and for the message that a file has changed.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace gannet::plugin {

std::string sha256(std::string_view bytes);  // 64 hexadecimal digits

struct TrustedFile {
  std::string hash, file;
};

class TrustList {
 public:
  // `trusted` is the config's value: "true" for the user's own list, else a path. Throws
  // Error(kPlugin) if the list is missing, is not a regular file, has an invalid line, or may be
  // written by every user of the machine; Error(kIo) if it cannot be read.
  static TrustList read(const std::string& trusted);
  // The same, but returns an empty list if there is no such file yet.
  static TrustList read_or_empty(const std::string& trusted);
  // Like read_or_empty, for a list that the caller will change. Other commands that change the list
  // wait until this object is destroyed. Also throws Error(kIo) if it cannot be locked.
  static TrustList read_to_change(const std::string& trusted);
  // Writes the list to a new file, which then replaces the old one: all or nothing is written.
  // Throws Error(kIo).
  void write() const;

  // Throws Error(kPlugin) with the command that adds the file, unless the list has the hash. `file`
  // is for the message.
  void require_hash(const std::string& file, const std::string& hash) const;

  void add(const std::string& hash, const std::string& file);  // replaces the file's previous hash
  bool remove(const std::string& hash_or_file);                // returns whether it was in the list
  const std::vector<TrustedFile>& files() const { return files_; }
  const std::string& path() const { return path_; }

 private:
  std::string command() const;  // "gannet plugins trust", with --trusted unless this is the user's own list

  std::string path_;
  bool is_own_ = false;         // whether it is the user's own list
  std::shared_ptr<void> lock_;  // held since read_to_change()
  std::vector<TrustedFile> files_;
};

// $XDG_CONFIG_HOME/gannet/trusted_plugins, else ~/.config/gannet/trusted_plugins. Throws
// Error(kPlugin) if neither is known.
std::string own_trust_list();

// An in-memory copy of a file. No process can change the copy, not even this one, so the bytes that
// are opened are the bytes that were hashed.
//
//   SealedCopy copy("lion.so");
//   trust.require_hash("lion.so", sha256(ElfFile(copy.path()).bytes()));
//   dlopen(copy.path().c_str(), ...);
//   copy.keep();
class SealedCopy {
 public:
  explicit SealedCopy(const std::string& file);  // throws Error(kPlugin) with only the reason
  ~SealedCopy();
  SealedCopy(const SealedCopy&) = delete;
  const std::string& path() const { return path_; }  // "/proc/self/fd/N"
  // Leaves the descriptor open for the life of the process. The dynamic linker identifies a library
  // by its path: if N were reused, it would mistake the next library at that path for this one.
  void keep() { descriptor_ = -1; }

 private:
  int descriptor_;
  std::string path_;
};

}  // namespace gannet::plugin
