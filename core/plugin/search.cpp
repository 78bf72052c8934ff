#include "plugin/search.h"

#include <dlfcn.h>
#include <gannet/error.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/format.h"
#include "base/text.h"

namespace gannet::plugin {
namespace {

namespace fs = std::filesystem;

// The folder `gannet` next to the loaded libgannet_core.so.
fs::path folder_beside_core() {
  Dl_info info{};
  if (!dladdr(reinterpret_cast<const void*>(&search), &info) || !info.dli_fname) return {};
  std::error_code failed;
  const auto library = fs::canonical(info.dli_fname, failed);
  return failed ? fs::path() : library.parent_path() / "gannet";
}

class Collector {
 public:
  explicit Collector(SearchResult& result) : result_(result) {}

  // Returns false if nothing exists at `path`.
  bool add(const fs::path& path, const std::string& why) {
    std::error_code failed;
    const auto real = fs::weakly_canonical(path, failed);
    const std::string place = failed ? path.string() : real.string();
    const bool exists = !failed && fs::exists(real, failed);
    if (std::find(places_.begin(), places_.end(), place) != places_.end()) return exists;
    places_.push_back(place);
    result_.places.push_back(formatted("{} ({}{}", place, why, exists ? ")" : ", not there)"));
    if (!exists) return false;
    if (!fs::is_directory(real, failed)) {
      add_file(real.string(), path);
      return true;
    }
    std::vector<std::pair<std::string, fs::path>> found;
    std::error_code unresolved;  // for one entry, so that a circular link does not end the listing
    for (fs::directory_iterator entry(real, failed), end; !failed && entry != end; entry.increment(failed)) {
      if (entry->path().extension() != ".so") continue;
      const fs::path file = fs::weakly_canonical(entry->path(), unresolved);
      found.emplace_back((unresolved ? entry->path() : file).string(), path / entry->path().filename());
    }
    if (failed) result_.places.back() += formatted(" (cannot be read: {})", failed.message());
    std::sort(found.begin(), found.end());  // the file system's order is arbitrary
    for (const auto& [file, way] : found) add_file(file, way);
    return true;
  }

  void add_own(const fs::path& folder, const std::string& why) {
    add(folder, why);
    std::error_code failed;
    if (const auto real = fs::weakly_canonical(folder, failed); !failed) result_.own_folders.push_back(real.string());
  }

 private:
  void add_file(const std::string& file, const fs::path& way) {
    if (std::find(result_.files.begin(), result_.files.end(), file) != result_.files.end()) return;
    std::error_code failed;
    result_.files.push_back(file);
    result_.ways.push_back(fs::absolute(way, failed).string());
  }

  SearchResult& result_;
  // The canonical paths of the places so far: a folder that is named twice is searched once, at its
  // first position.
  std::vector<std::string> places_;
};

}  // namespace

SearchResult search(const std::vector<std::string>& explicit_paths) {
  SearchResult result;
  Collector collector(result);
  for (const auto& path : explicit_paths)
    if (!collector.add(path, "named by the config"))
      throw Error(
          ErrorCode::kPlugin,
          formatted("there is no plugin file or folder '{}', named by the config (looked at {})", path, result.places.back()),
          "correct \"plugins\": {\"path\": [...]}; a relative path starts at the current directory");
  if (const char* variable = std::getenv("GANNET_PLUGIN_PATH"))
    for (const auto& path : split(variable, ':')) collector.add(path, "GANNET_PLUGIN_PATH");
  if (const auto folder = folder_beside_core(); !folder.empty()) collector.add_own(folder, "beside the core library");
  collector.add_own(GANNET_INSTALLED_PLUGINS, "install prefix");
  return result;
}

}  // namespace gannet::plugin
