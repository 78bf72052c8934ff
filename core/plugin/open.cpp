// This is the only file that uses Boost.DLL.
#include "plugin/open.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <gannet/error.h>
#include <link.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/format.h"
#include "base/text.h"
#include "plugin/elf_file.h"
#include "plugin/handshake.h"
#include "plugin/inside.h"

// Must come after <cstring> and <vector>: Boost.DLL 1.74 uses both but includes neither.
#include <boost/dll/shared_library.hpp>

namespace gannet::plugin {
namespace {

constexpr const char* kRebuild = "build it with gannet_add_plugin() against this Gannet's SDK, or ask its author to";

std::string hash_of(std::string_view bytes) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(XXH3_64bits(bytes.data(), bytes.size())));
  return text;
}

std::string demangled(const std::string& symbol) {
  int status = 0;
  std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? std::string(name.get()) : symbol;
}

std::string replaced(std::string text, const std::string& word, const std::string& by) {
  if (word != by)
    for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += by.size()) text.replace(at, word.size(), by);
  return text;
}

// Explains the loader's message in the two cases with a remedy: "libx.so.1: cannot open shared
// object file: ..." and "FILE: undefined symbol: name".
Error explain(const std::string& file, const ElfFile& elf, const std::string& loader) {
  constexpr std::string_view kMissing = ": cannot open shared object file", kUndefined = "undefined symbol: ";
  if (const size_t end = loader.find(kMissing); end != std::string::npos && loader.substr(0, end) != file) {
    const std::string library = loader.substr(0, end);
    const auto needed = elf.needed();
    const bool direct = std::find(needed.begin(), needed.end(), library) != needed.end();
    return Error(ErrorCode::kPlugin,
                 formatted("plugin {} needs the library {}{}, which is not found", printable(file), printable(library),
                           direct ? "" : formatted(" (through {})", printable(join(needed, ", ")))),
                 "install it, or put its folder into LD_LIBRARY_PATH");
  }
  if (const size_t begin = loader.find(kUndefined); begin != std::string::npos) {
    std::string symbol = loader.substr(begin + kUndefined.size());
    symbol.resize(std::min(symbol.find_first_of(", \n"), symbol.size()));
    return Error(ErrorCode::kPlugin,
                 formatted("plugin {} lacks the symbol {}: neither it nor a library that it needs defines it", printable(file),
                           printable(demangled(symbol))),
                 "link the plugin to the library that has it; -Wl,-z,defs shows this when the plugin is built");
  }
  return Error(ErrorCode::kPlugin, formatted("plugin {} cannot be opened: {}", printable(file), printable(loader)));
}

// The table, limited to the size of the loaded symbol: the bytes after the symbol do not belong to
// the table.
std::span<const gannet_descriptor* const> whole_table(const gannet_descriptor* const* first) {
  Dl_info info{};
  ElfW(Sym)* symbol = nullptr;
  const bool is_known =
      dladdr1(first, &info, reinterpret_cast<void**>(&symbol), RTLD_DL_SYMENT) != 0 && symbol && info.dli_saddr == first;
  return {first, is_known ? symbol->st_size / sizeof(*first) : 0};
}

// `opened`: the path to open, either the file itself or a copy.
std::span<const gannet_descriptor* const> table_of(const std::string& file, const std::string& opened, const ElfFile& elf) {
  namespace dll = boost::dll;
  // NODELETE, in addition to the leak below, keeps any other dlclose from unmapping the code of a
  // live object. With rtld_now, a missing symbol is an error here, not at its first call during
  // training. With rtld_local, one plugin's symbols are not visible to the next.
  const auto mode = dll::load_mode::rtld_now | dll::load_mode::rtld_local | static_cast<dll::load_mode::type>(RTLD_NODELETE);
  std::error_code failed;
  auto* library = new dll::shared_library();  // leaked: plugins live as long as the process
  {
    const PluginCallMark inside(file.c_str());  // the file's static constructors run inside the mark
    library->load(opened, mode, failed);
  }
  if (failed) {
    const char* text = dlerror();
    throw explain(file, elf, replaced(text ? text : failed.message(), opened, file));
  }
  if (!library->has(GANNET_EXPORT_NAME))
    throw Error(ErrorCode::kPlugin,
                formatted("plugin {} has the note of a plugin and does not export " GANNET_EXPORT_NAME, printable(file)),
                "declare its plugins with GANNET_PLUGINS(...) of gannet/sdk.hpp");
  return whole_table(&library->get<const gannet_descriptor* const>(GANNET_EXPORT_NAME));
}

// An open plugin file. Its SHA-256 is computed when a trust list first checks the file.
struct OpenedFile {
  std::vector<const Plugin*> plugins;
  std::string sha256;
};

[[noreturn]] void fail(const Candidate& candidate, const std::string& reason, const std::string& remedy) {
  throw Error(ErrorCode::kPlugin, formatted("plugin {} {}", printable(candidate.file), printable(reason)), remedy);
}

// Checks an open file against a trust list. If the file was opened without one, its SHA-256 is
// computed now, provided that its XXH3 hash still matches the opened file's.
void require_trust(const TrustList& trust, const Candidate& candidate, OpenedFile& opened) {
  if (opened.sha256.empty()) {
    const ElfFile now(candidate.file);
    if (opened.plugins.empty() || hash_of(now.bytes()) != opened.plugins[0]->hash)
      fail(candidate, "has changed since this process opened it, and whether that was a trusted one is not known",
           "start the program again");
    opened.sha256 = sha256(now.bytes());
  }
  trust.require_hash(candidate.file, opened.sha256);
}

// `path`: the file itself, or the copy that was checked against the trust list.
OpenedFile open_file(const Candidate& candidate, const std::string& path) {
  const ElfFile elf(path);
  OpenedFile opened;
  const std::string hash = hash_of(elf.bytes());
  const auto table = table_of(candidate.file, path, elf);
  try {
    for (const auto* descriptor : shake_hands(table, candidate))
      opened.plugins.push_back(new Plugin{descriptor, candidate.file, hash});
  } catch (const Error& error) {
    fail(candidate, error.message(), error.next_step().empty() ? kRebuild : error.next_step());
  }
  return opened;
}

OpenedFile open_trusted(const Candidate& candidate, const TrustList& trust) {
  std::unique_ptr<SealedCopy> copy;
  try {
    copy = std::make_unique<SealedCopy>(candidate.file);
  } catch (const Error& error) {
    fail(candidate, error.message(), "the system must have memfd_create and /proc where \"plugins\": {\"trusted\": ...} is set");
  }
  const std::string hash = sha256(ElfFile(copy->path()).bytes());
  trust.require_hash(candidate.file, hash);
  copy->keep();  // even if opening fails: the dynamic linker may have seen the path
  OpenedFile opened = open_file(candidate, copy->path());
  opened.sha256 = hash;
  return opened;
}

}  // namespace

const std::vector<const Plugin*>& open(const Candidate& candidate, const TrustList* trust) {
  // These objects are never destroyed: plugins may be used while static objects are destroyed.
  static auto& mutex = *new std::mutex;
  // The open files by canonical path: two links to one file are the same plugin.
  static auto& opened = *new std::map<std::string, OpenedFile>;
  std::lock_guard lock(mutex);
  if (const auto found = opened.find(candidate.file); found != opened.end()) {
    if (trust) require_trust(*trust, candidate, found->second);
    return found->second.plugins;
  }
  if (!candidate.rejected.empty())
    throw Error(ErrorCode::kPlugin, formatted("plugin {} {}", printable(candidate.file), candidate.rejected),
                candidate.remedy.empty() ? kRebuild : candidate.remedy);
  OpenedFile fresh = trust ? open_trusted(candidate, *trust) : open_file(candidate, candidate.file);
  return opened.emplace(candidate.file, std::move(fresh)).first->second.plugins;
}

}  // namespace gannet::plugin
