#include "kit/new_plugin.h"

#include <gannet/error.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/text.h"
#include "kit_templates.h"

namespace gannet::kit {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestName = 64;

// The texts for README.md by kind: a description, and the config line that uses the plugin.
struct KindTexts {
  const char* name;
  const char* what;
  const char* config;
};
constexpr KindTexts kTexts[] = {
    {"optimizer", "an optimizer", R"("optimizer": {"type": "@name@", "params": {"lr": 1e-2}})"},
    {"scheduler", "a learning-rate schedule", R"("scheduler": {"type": "@name@", "params": {"warmup_num_steps": 100}})"},
    {"offload", "a tier for what ZeRO offloads",
     R"("zero_optimization": {"stage": 2, "offload_optimizer": {"device": "@name@"}})"},
    {"comm", "the communication between ranks", R"("comm": {"type": "@name@"})"},
    {"accelerator", "a device to train on", R"("accelerator": {"type": "@name@"})"},
};

const Template* find(const std::string& file) {
  const auto found =
      std::find_if(std::begin(kTemplates), std::end(kTemplates), [&](const Template& one) { return one.file == file; });
  return found == std::end(kTemplates) ? nullptr : found;
}

std::string extension_of(const std::string& language) { return language == "c99" ? "c" : "cpp"; }

// The name is used in C++ class names, file names, a CMake target and the ELF note.
void check_name(const std::string& name) {
  const auto is_letter = [](char c) {
    return std::isalpha(static_cast<unsigned char>(c)) && static_cast<unsigned char>(c) < 128;
  };
  const auto is_legal = [&](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '_'; };
  const bool is_word = !name.empty() && is_letter(name[0]) && std::all_of(name.begin(), name.end(), is_legal);
  if (is_word && name.size() <= kLongestName) return;
  std::string repaired;  // the nearest legal name
  for (const char c : name)
    if (is_legal(c) && (is_letter(c) || !repaired.empty()))
      repaired += c;
    else if (!repaired.empty() && repaired.back() != '_')
      repaired += '_';
  while (!repaired.empty() && repaired.back() == '_') repaired.pop_back();
  if (repaired.size() > kLongestName) repaired.resize(kLongestName);
  throw Error(ErrorCode::kArgument,
              formatted("'{}' cannot be a plugin's name: it begins with a letter and has letters, digits and "
                        "underscores, {} at most",
                        printable(name), kLongestName),
              repaired.empty() ? "choose another, as 'mine'" : formatted("'{}' would do", repaired));
}

// "my_lion" -> "MyLion": never a keyword of the language.
std::string class_name(const std::string& name) {
  std::string result;
  for (const std::string& part : split(name, '_')) {
    result += part;
    result[result.size() - part.size()] = static_cast<char>(std::toupper(static_cast<unsigned char>(part[0])));
  }
  return result;
}

std::string filled(std::string_view text, const std::map<std::string, std::string>& values) {
  std::string result(text);
  for (const auto& [key, value] : values) {
    const std::string place = formatted("@{}@", key);
    for (size_t at = 0; (at = result.find(place, at)) != std::string::npos; at += value.size())
      result.replace(at, place.size(), value);
  }
  return result;
}

[[noreturn]] void cannot_write(const fs::path& path, const std::string& reason) {
  throw Error(ErrorCode::kIo, formatted("cannot write {}: {}", printable(path.string()), reason),
              "name another folder with --folder");
}

void prepare(const fs::path& folder) {
  std::error_code failed;
  const fs::file_status status = fs::status(folder, failed);
  if (fs::exists(status)) {
    if (!fs::is_directory(status))
      throw Error(ErrorCode::kArgument, formatted("{} exists and is not a folder", printable(folder.string())),
                  "name another one with --folder");
    const bool is_empty = fs::is_empty(folder, failed);
    if (failed) cannot_write(folder, failed.message());
    if (!is_empty)
      throw Error(ErrorCode::kArgument, formatted("the folder {} is not empty", printable(folder.string())),
                  "nothing in it was changed: name another one with --folder, or empty it");
    return;
  }
  if (!fs::create_directories(folder, failed)) cannot_write(folder, failed ? failed.message() : "not created");
}

void write(const fs::path& path, const std::string& text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) cannot_write(path, errno ? std::strerror(errno) : "the disk refused it");
}

// " -DCMAKE_PREFIX_PATH=/opt/gannet" if this program is part of an installed SDK, "" if CMake finds
// the SDK by itself, and otherwise the option with a placeholder.
std::string prefix_option() {
  std::error_code failed;
  const fs::path self = fs::read_symlink("/proc/self/exe", failed);
  const fs::path prefix = self.parent_path().parent_path().parent_path();
  if (prefix == "/usr" || prefix == "/usr/local") return "";
  std::vector<fs::path> libraries = {prefix / "lib64"};  // the install's CMAKE_INSTALL_LIBDIR: lib64, lib, lib/x86_64-linux-gnu
  for (const auto& entry : fs::directory_iterator(prefix / "lib", failed)) libraries.push_back(entry.path());
  libraries.push_back(prefix / "lib");
  for (const fs::path& library : libraries)
    if (fs::exists(library / "cmake/gannet/gannet-config.cmake", failed))
      return formatted(" -DCMAKE_PREFIX_PATH={}", prefix.string());
  return " -DCMAKE_PREFIX_PATH=PREFIX    # where the SDK is installed";
}

}  // namespace

int new_plugin(const NewOptions& options) {
  check_name(options.name);
  const std::string name = lower(options.name), extension = extension_of(options.language);
  const auto* kind =
      std::find_if(std::begin(kTexts), std::end(kTexts), [&](const KindTexts& one) { return options.kind == one.name; });
  const Template* source = find(formatted("{}.{}", options.kind, extension));
  if (kind == std::end(kTexts) || !source) {
    std::vector<std::string> kinds;
    for (const KindTexts& one : kTexts)
      if (find(formatted("{}.{}", one.name, extension))) kinds.emplace_back(one.name);
    throw Error(ErrorCode::kArgument, formatted("there is no template of a plugin '{}' in {}", options.kind, options.language),
                formatted("in {} there is: {}; leave out --language for C++", options.language, join(kinds, ", ")));
  }
  const bool is_rule = options.kind == std::string("optimizer") && extension == "cpp";
  std::map<std::string, std::string> values = {
      {"name", name},
      {"Name", class_name(name)},
      {"kind", options.kind},
      {"source", formatted("{}.{}", name, extension)},
      {"cmake_language", extension == "c" ? "C" : "CXX"},
      // An element-wise rule is compiled for each of these devices.
      {"devices", is_rule ? " DEVICES cpu" : ""},
      {"what", kind->what},
  };
  values["config"] = filled(kind->config, values);

  const fs::path folder = options.folder.empty() ? fs::path(name) : fs::path(options.folder);
  prepare(folder);
  write(folder / "CMakeLists.txt", filled(find("CMakeLists.txt")->text, values));
  write(folder / values["source"], filled(source->text, values));
  write(folder / "README.md", filled(find("README.md")->text, values));
  const std::string where = printable(folder.string());
  std::cout << formatted("wrote {}/: CMakeLists.txt, {}, README.md\n\nThe plugin is in {}/{}. To build and to check it:\n", where,
                         values["source"], where, values["source"])
            << formatted("  cmake -S {} -B {}/build{}\n  cmake --build {}/build\n", where, where, prefix_option(), where)
            << formatted("  ctest --test-dir {}/build --output-on-failure\n", where);
  return 0;
}

}  // namespace gannet::kit
