#include "kit/trust.h"

#include <gannet/error.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "base/format.h"
#include "base/text.h"
#include "plugin/elf_file.h"
#include "plugin/note.h"
#include "plugin/trust.h"

namespace gannet::kit {
namespace {

namespace fs = std::filesystem;

std::string canonical_of(const std::string& path) {
  std::error_code failed;
  const fs::path real = fs::canonical(path, failed);
  if (failed) throw Error(ErrorCode::kNotFound, formatted("there is no plugin file '{}': {}", printable(path), failed.message()));
  return real.string();
}

// For a folder, all files in it that end in ".so", which the loader would search; libraries that
// are not plugins are left out.
std::vector<std::string> plugins_of(const std::string& path) {
  const std::string real = canonical_of(path);
  if (!fs::is_directory(real)) return {real};
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(real)) {
    if (entry.path().extension() != ".so") continue;
    const std::string file = canonical_of(entry.path().string());
    if (!plugin::is_foreign(plugin::read_candidate(file))) files.push_back(file);
  }
  std::sort(files.begin(), files.end());
  if (files.empty())
    throw Error(ErrorCode::kNotFound, formatted("there is no plugin in the folder {}", printable(real)),
                "name plugin files, or a folder that has some");
  return files;
}

// Returns the file's hash, and sets `provides`. Also accepts a pinned-tier plugin that was built
// for another LibTorch or ABI.
std::string hash_of(const std::string& file, std::string& provides) {
  if (printable(file) != file)
    throw Error(ErrorCode::kArgument, formatted("'{}' has characters that a list cannot contain", printable(file)), "rename it");
  const plugin::Candidate candidate = plugin::read_candidate(file);
  if (candidate.provides.empty())
    throw Error(ErrorCode::kPlugin, formatted("{} is not a plugin that can be trusted: it {}", file, candidate.rejected),
                "name a plugin's file");
  provides = join(candidate.provides, " ");
  return plugin::sha256(plugin::ElfFile(file).bytes());
}

void print(const plugin::TrustList& list) {
  std::cout << printable(list.path()) << (list.files().empty() ? ": no plugin is trusted\n" : ":\n");
  for (const plugin::TrustedFile& one : list.files()) {
    std::error_code failed;
    const bool is_there = fs::exists(one.file, failed);
    bool is_same = false;
    try {
      is_same = is_there && plugin::sha256(plugin::ElfFile(one.file).bytes()) == one.hash;
    } catch (const Error&) {  // no longer a library: it has changed
    }
    const char* state = is_same ? "" : is_there ? "  (has changed since: it would be refused)" : "  (no longer there)";
    std::cout << formatted("  {}  {}{}\n", one.hash, printable(one.file), state);
  }
}

}  // namespace

int trust_files(const TrustOptions& options) {
  const std::string trusted = options.trusted.empty() ? "true" : options.trusted;
  const bool changes = !options.files.empty() || !options.remove.empty();
  plugin::TrustList list = changes ? plugin::TrustList::read_to_change(trusted) : plugin::TrustList::read_or_empty(trusted);
  std::string said;
  for (const std::string& word : options.remove) {
    std::error_code failed;
    const std::string real = fs::weakly_canonical(word, failed).string();
    if (!list.remove(word) && (failed || !list.remove(real)))
      throw Error(ErrorCode::kNotFound, formatted("{} has no file or hash '{}'", printable(list.path()), printable(word)),
                  "`gannet plugins trust --list` prints it");
    said += formatted("no longer trusted: {}\n", printable(word));
  }
  for (const std::string& path : options.files)
    for (const std::string& file : plugins_of(path)) {
      std::string provides;
      const std::string hash = hash_of(file, provides);
      list.add(hash, file);
      said += formatted("trusted: {}  {}  ({})\n", hash, file, provides);
    }
  if (said.empty() && !options.list)
    throw Error(ErrorCode::kArgument, "`gannet plugins trust` needs a FILE to trust, --remove FILE or --list",
                "`gannet plugins trust --help` lists its arguments");
  if (said.empty()) {
    print(list);
    return 0;
  }
  list.write();
  std::cout << said << "in " << printable(list.path()) << '\n';
  if (options.list) print(list);
  return 0;
}

}  // namespace gannet::kit
