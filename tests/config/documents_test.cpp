// The configs that DeepSpeed's and Hugging Face's documents print, filled from training arguments: value by value what
// transformers makes of them (tests/configs/documents/filled.json, which write_filled_configs.py made).
#include <gannet/fill_auto.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "expect_error.h"

namespace gannet {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

const std::string kFolder = GANNET_SOURCE_DIR "/tests/configs/documents/";

const json& filled() {
  static const json& all = *new json([] {
    std::ifstream in(kFolder + "filled.json");
    return json::parse(in);
  }());
  return all;
}

Value value_of(const json& found) {
  if (found.is_boolean()) return found.get<bool>();
  if (found.is_number_integer()) return found.get<int64_t>();
  if (found.is_number()) return found.get<double>();
  if (found.is_string()) return found.get<std::string>();
  if (found.is_null()) return {};
  if (found.is_array()) {
    List list;
    for (const json& element : found) list.push_back(value_of(element));
    return list;
  }
  Dict dict;
  for (const auto& [name, part] : found.items()) dict[name] = value_of(part);
  return dict;
}

bool same_value(const Value& a, const Value& b) {
  if (a.is_list() && b.is_list())
    return std::equal(a.as_list().begin(), a.as_list().end(), b.as_list().begin(), b.as_list().end(), same_value);
  return a.is_number() && b.is_number() ? a.as_number() == b.as_number() : a == b;
}

// Two documents print a key where DeepSpeed does not read it: refused as printed. filled.json has them amended.
const std::map<std::string, std::string> kRefused = {
    {"004_line_1097", "unknown key 'enabled' at the top level"},
    {"004_line_551", "unknown key 'aio' in zero_optimization; it belongs at the top level"}};

Config config_of(const std::string& name, const json& expected) {
  return expected.contains("amended") ? Config(value_of(expected.at("amended")).as_dict()) : Config(kFolder + name + ".json");
}

// transformers 5 has dropped amp. The documents' table: amp is on with fp16 by apex, at level O1
// unless one is given.
const std::map<std::string, Value> kAmp = {{"amp.enabled", false}, {"amp.opt_level", "O1"}};

std::set<std::string> mismatches_of(const std::string& name, const json& expected) {
  auto mismatches = expected.at("mismatches").get<std::set<std::string>>();
  if (name == "004_line_1108") mismatches.insert("amp.enabled");  // true, where the arguments have fp16 without apex
  return mismatches;
}

// "zero_optimization.stage" of each line "  zero_optimization.stage = 2 (...), but ..."
std::set<std::string> named_in(const Error& error) {
  std::set<std::string> paths;
  std::istringstream lines(error.message());
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("  ") && line.find(" = ") != line.npos) paths.insert(line.substr(2, line.find(' ', 2) - 2));
  }
  return paths;
}

Config& fill(Config& config) {
  Dict arguments = value_of(filled().at("arguments")).as_dict();
  arguments["fp16_opt_level"] = "O1";  // its default, where transformers had it
  return fill_auto(config, arguments,
                   {.world_size = filled().at("ranks"), .hidden_size = filled().at("hidden_size"), .add_missing = false});
}

TEST(DocumentsConfigs, ResolveToTheValuesThatTransformersFills) {
  int resolved = 0, with_auto = 0, contradicting = 0;
  for (const auto& [name, expected] : filled().at("configs").items()) {
    SCOPED_TRACE(name);
    if (const auto refused = kRefused.find(name); refused != kRefused.end())
      EXPECT_THAT(error_of([&, &file = name] { Config(kFolder + file + ".json"); }).what(), HasSubstr(refused->second));
    Config config = config_of(name, expected);
    with_auto += !expected.at("filled").empty();
    if (const auto mismatches = mismatches_of(name, expected); !mismatches.empty()) {
      EXPECT_EQ(named_in(error_of([&] { fill(config); })), mismatches);
      ++contradicting;
      continue;
    }
    fill(config);
    std::map<std::string, Value> effective;
    for (ConfigEntry& entry : config.resolve(filled().at("ranks"))) effective[entry.path] = std::move(entry.value);
    for (const auto& [path, wanted] : expected.at("values").items()) {
      const Value value = kAmp.count(path) ? kAmp.at(path) : value_of(wanted);
      EXPECT_TRUE(same_value(config.get(path).value, value)) << path << " = " << config.get(path).value.to_json();
      if (const auto found = effective.find(path); found != effective.end())
        EXPECT_TRUE(same_value(found->second, value)) << path << " is effectively " << found->second.to_json();
    }
    for (const json& path : expected.at("filled")) EXPECT_THAT(config.get(path).origin, HasSubstr("auto: ")) << path;
    ++resolved;
  }
  EXPECT_EQ(with_auto, 16);
  EXPECT_EQ(resolved + contradicting, 39);
  EXPECT_EQ(contradicting, 13);
}

// A number or a text that contradicts the one that was filled in.
Value another(const Value& value) {
  if (value.is_bool()) return !value.as_bool();
  if (value.is_string()) return value.as_string() == "O1" ? "O2" : "O1";
  if (value.is_list()) return List{0.5, value.as_list().at(1)};
  return value.is_int() ? Value(value.as_int() * 2 + 1) : Value(value.as_number() * 2 + 1);
}

Value in_quotes(const Value& value) {
  if (value.is_string()) return value;
  if (!value.is_list()) return value.to_json();
  List list;
  for (const Value& element : value.as_list()) list.push_back(element.to_json());
  return list;
}

TEST(DocumentsConfigs, AnotherValueOfAFilledKeyIsNamedAndAnotherSpellingIsNot) {
  int named = 0, spelled = 0;
  for (const auto& [name, expected] : filled().at("configs").items()) {
    SCOPED_TRACE(name);
    Config all = config_of(name, expected);
    std::set<std::string> contradicted;
    for (const json& key : expected.at("filled")) {
      const std::string path = key;
      SCOPED_TRACE(path);
      const Value right = kAmp.count(path) ? kAmp.at(path) : value_of(expected.at("values").at(path));
      Config quoted = config_of(name, expected);
      quoted.fill(path, in_quotes(right), "program");
      EXPECT_NO_THROW(fill(quoted));
      ++spelled;

      Config config = config_of(name, expected);
      config.fill(path, another(right), "program");
      all.fill(path, another(right), "program");
      // Only values that arguments give can be contradicted: not 0 for warmup_min_lr, and not what follows from the model.
      const bool is_of_arguments = kAmp.count(path) || expected.at("contradicted").at(path).get<bool>();
      if (!is_of_arguments) {
        EXPECT_NO_THROW(fill(config));
        continue;
      }
      EXPECT_EQ(named_in(error_of([&] { fill(config); })), std::set<std::string>{path});
      contradicted.insert(path);
      ++named;
    }
    if (!contradicted.empty()) EXPECT_EQ(named_in(error_of([&] { fill(all); })), contradicted) << "all in one error";
  }
  EXPECT_GT(named, 60);
  EXPECT_GT(spelled, named);
}

TEST(DocumentsConfigs, TheCommandLineResolvesThemToo) {
  const fs::path folder = fs::path(testing::TempDir()) / ("documents_" + std::to_string(getpid()));
  fs::create_directories(folder);
  std::ofstream(folder / "arguments.json") << filled().at("arguments");
  std::ofstream(folder / "model.json") << json{{"hidden_size", filled().at("hidden_size")}};
  for (const auto& [name, expected] : filled().at("configs").items()) {
    if (expected.at("filled").size() < 12) continue;  // four of them: a start takes longer than all the rest
    SCOPED_TRACE(name);
    const std::string command = GANNET_BINARY_DIR "/bin/gannet config resolve " + kFolder + name + ".json --json --world-size " +
                                filled().at("ranks").dump() + " --arguments '" + (folder / "arguments.json").string() +
                                "' --model-config '" + (folder / "model.json").string() + "' 2>/dev/null";
    std::string text;
    FILE* pipe = popen(command.c_str(), "r");
    for (int letter; (letter = fgetc(pipe)) != EOF;) text += static_cast<char>(letter);
    ASSERT_EQ(pclose(pipe), 0) << command;
    const json resolved = json::parse(text);
    for (const json& key : expected.at("filled")) {
      const auto path = key.get<std::string>();
      ASSERT_TRUE(resolved.contains(path)) << path;
      EXPECT_TRUE(same_value(value_of(resolved.at(path).at("value")), value_of(expected.at("values").at(key)))) << path;
      EXPECT_THAT(resolved.at(path).at("origin").get<std::string>(), HasSubstr("auto: ")) << path;
    }
  }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace gannet
