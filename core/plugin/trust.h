// Plugin files that may be opened, by the SHA-256 of their bytes: what "plugins": {"trusted": ...} of a config asks for, and
// `gannet plugins trust` keeps.
//
// The list is a file as sha256sum(1) writes it and checks it, "HASH  FILE" in each line; `#` begins a comment. A file is trusted
// for what it holds, wherever it lies: the path in the list is for people, and for the sentence that says that it has changed.
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
  // `trusted` is the config's value: "true" for the user's own list, else a path. Throws Error(kPlugin) where the list is
  // missing, has a line that is none, or is one that every user of the machine may write.
  static TrustList read(const std::string& trusted);
  // The same; empty where there is no such file yet.
  static TrustList read_or_empty(const std::string& trusted);
  // The same, to be changed and written: until the list is gone, other commands that change it wait. Throws Error(kIo).
  static TrustList read_to_change(const std::string& trusted);
  // Whole or not at all: a new file takes the old one's place. Throws Error(kIo).
  void write() const;

  // Throws Error(kPlugin) with the command to run, unless the list has the hash. `file`: for that sentence.
  void require_hash(const std::string& file, const std::string& hash) const;

  void add(const std::string& hash, const std::string& file);  // in place of the file's former hash
  bool remove(const std::string& hash_or_file);                // whether it was there
  const std::vector<TrustedFile>& files() const { return files_; }
  const std::string& path() const { return path_; }

 private:
  std::string command() const;  // "gannet plugins trust", with --trusted where this is not the user's own list

  std::string path_;
  bool is_own_ = false;         // the user's own list
  std::shared_ptr<void> lock_;  // of read_to_change
  std::vector<TrustedFile> files_;
};

// $XDG_CONFIG_HOME/gannet/trusted_plugins, else ~/.config/gannet/trusted_plugins. Throws Error(kPlugin) where neither is known.
std::string own_trust_list();

// A copy of a file in memory that nobody can change, not this process either: what is hashed is what is opened.
//
//   SealedCopy copy("lion.so");
//   trust.require_hash("lion.so", sha256(ElfFile(copy.path()).bytes()));
//   dlopen(copy.path().c_str(), ...);
//   copy.keep();
class SealedCopy {
 public:
  explicit SealedCopy(const std::string& file);  // throws Error(kPlugin) with the bare reason
  ~SealedCopy();
  SealedCopy(const SealedCopy&) = delete;
  const std::string& path() const { return path_; }  // "/proc/self/fd/N"
  // Leaves the descriptor open for the life of the process. The dynamic linker knows a library by its path: were N used again,
  // it would take the next library at that path for this one.
  void keep() { descriptor_ = -1; }

 private:
  int descriptor_;
  std::string path_;
};

}  // namespace gannet::plugin
