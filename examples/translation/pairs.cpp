#include "pairs.h"

#include <gannet/error.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace translation {
namespace {

namespace fs = std::filesystem;

using gannet::Error;
using gannet::ErrorCode;
using nlohmann::json;

constexpr const char* kForm = R"(each line is {"translation": {"en": "...", "ro": "..."}})";

std::string text_of(const json& translation, const std::string& language, const std::string& where) {
  const auto found = translation.find(language);
  if (found == translation.end()) {
    std::string there;
    for (const auto& [name, text] : translation.items()) there += (there.empty() ? "" : ", ") + name;
    throw Error(ErrorCode::kArgument, where + "no text in the language '" + language + "', only in: " + there,
                "name two of these by --source_lang and --target_lang");
  }
  if (!found->is_string()) throw Error(ErrorCode::kArgument, where + "'" + language + "' is not a string", kForm);
  return found->get<std::string>();
}

// Looks for the file in sibling folders, because a dataset may have several language pairs.
std::string folder_with(const fs::path& path) {
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(path.parent_path(), none))
    if (fs::exists(entry.path() / path.filename(), none))
      return "it is in " + entry.path().string() + ": give --dataset_config " + entry.path().filename().string();
  return "name a file of JSON lines";
}

}  // namespace

std::vector<Pair> read_pairs(const std::string& path, const std::string& source_lang, const std::string& target_lang,
                             std::optional<int64_t> limit) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(ErrorCode::kNotFound, "cannot read the pairs of " + path, folder_with(path));
  std::vector<Pair> pairs;
  std::string line;
  for (int64_t number = 1; std::getline(in, line); ++number) {
    if (limit && static_cast<int64_t>(pairs.size()) == *limit) break;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = path + ":" + std::to_string(number) + ": ";
    const json entry = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (entry.is_discarded()) throw Error(ErrorCode::kArgument, where + "this line is not JSON", kForm);
    if (!entry.is_object() || !entry.contains("translation") || !entry["translation"].is_object())
      throw Error(ErrorCode::kArgument, where + "no dictionary 'translation'", kForm);
    pairs.push_back({text_of(entry["translation"], source_lang, where), text_of(entry["translation"], target_lang, where)});
  }
  if (pairs.empty()) throw Error(ErrorCode::kArgument, path + " has no pairs", kForm);
  return pairs;
}

}  // namespace translation
