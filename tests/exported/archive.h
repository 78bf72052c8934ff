// The folders of tests/exported/archives and of GANNET_ARCHIVES (make_archives.py), and copies of them with a change.
#pragma once

#include <ATen/ops/equal.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/nan_to_num.h>
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

using Tensors = std::map<std::string, at::Tensor>;

// The tensors under `head`, without it.
inline Tensors below(const Tensors& all, const std::string& head) {
  Tensors found;
  for (auto at = all.lower_bound(head); at != all.end() && at->first.starts_with(head); ++at)
    found.emplace(at->first.substr(head.size()), at->second);
  return found;
}

inline bool are_equal(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  return at::equal(a, b) ||
         (a.is_floating_point() && at::equal(a.isnan(), b.isnan()) && at::equal(a.nan_to_num(), b.nan_to_num()));
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
