// The folders of tests/exported/archives and of GANNET_ARCHIVES (make_archives.py), and copies of them with a change.
#pragma once

#include <gannet/exported.h>
#include <gannet/safetensors.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

namespace archive {

namespace fs = std::filesystem;

inline std::string folder(const std::string& name) { return std::string(GANNET_SOURCE_DIR) + "/tests/exported/archives/" + name; }

// Those kept in the tree, and all of GANNET_ARCHIVES.
inline std::vector<std::string> all() {
  std::vector<std::string> folders;
  const char* more = std::getenv("GANNET_ARCHIVES");
  for (const std::string& root : {folder(""), std::string(more ? more : "")})
    if (!root.empty())
      for (const auto& entry : fs::directory_iterator(root))
        if (entry.is_directory()) folders.push_back(entry.path().string());
  return folders;
}

inline std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A copy of a kept folder, removed with the object.
class Copy {
 public:
  explicit Copy(const std::string& name) {
    char made[] = "/tmp/gannet-exported-XXXXXX";
    path = ::mkdtemp(made);
    fs::copy(folder(name), path, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  }
  ~Copy() { fs::remove_all(path); }
  Copy(const Copy&) = delete;
  // Replaces the first occurrence, which must be there.
  bool replace(const std::string& file, const std::string& old, const std::string& now) const {
    std::string text = read(path + "/" + file);
    const size_t at = text.find(old);
    if (at == std::string::npos) return false;
    std::ofstream(path + "/" + file, std::ios::binary) << text.replace(at, old.size(), now);
    return true;
  }
  std::string path;
};

}  // namespace archive
