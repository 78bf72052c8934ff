#include "results.h"

#include <gannet/error.h>
#include <gannet/model_config.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>

namespace translation {
namespace {

namespace fs = std::filesystem;

// Writes atomically: a run that is killed while writing leaves the previous file.
void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path().empty() ? "." : path.parent_path());
  const fs::path beside = path.string() + ".tmp";
  std::ofstream out(beside, std::ios::binary);
  out << text;
  out.close();
  if (!out) {
    std::error_code ignored;
    fs::remove(beside, ignored);
    throw gannet::Error(gannet::ErrorCode::kIo, "cannot write " + path.string(), "is the disk full, or the folder read-only?");
  }
  fs::rename(beside, path);
}

std::vector<gannet::Dict::Entry> sorted(const gannet::Dict& values) {
  auto entries = values.entries();
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return entries;
}

// Formats values as json.dump(metrics, indent=4, sort_keys=True) does.
std::string as_json(const gannet::Dict& values) {
  std::string text = "{";
  for (const auto& [name, value] : sorted(values))
    text += (text == "{" ? "\n    " : ",\n    ") + gannet::Value(name).to_json() + ": " + value.to_json();
  return text + "\n}\n";
}

}  // namespace

void save_metrics(const std::string& folder, const std::string& split, const gannet::Dict& metrics) {
  std::cout << "***** " << split << " metrics *****\n";
  for (const auto& [name, value] : sorted(metrics)) std::cout << "  " << name << " = " << value.to_json() << '\n';
  write(fs::path(folder) / (split + "_results.json"), as_json(metrics));
  const fs::path all = fs::path(folder) / "all_results.json";
  gannet::Dict together = fs::exists(all) ? gannet::ModelConfig::read(all).values() : gannet::Dict();
  for (const auto& [name, value] : metrics.entries()) together[name] = value;
  write(all, as_json(together));
}

void save_predictions(const std::string& folder, const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (&text == texts.data() ? "" : "\n") + text;
  write(fs::path(folder) / "generated_predictions.txt", all);
}

void complete_model(const std::string& folder, const std::string& model_folder, const std::string& vocabulary) {
  const auto copy = [&](const fs::path& from, const char* name) {
    const fs::path to = fs::path(folder) / name;
    if (fs::exists(to) && fs::equivalent(from, to)) return;
    const fs::path beside = to.string() + ".tmp";
    fs::copy_file(from, beside, fs::copy_options::overwrite_existing);
    fs::rename(beside, to);
  };
  copy(fs::path(model_folder) / "config.json", "config.json");
  copy(vocabulary, "spiece.model");
}

}  // namespace translation
