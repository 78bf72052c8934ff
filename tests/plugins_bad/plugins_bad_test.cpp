// Every bad plugin beside the sentence that it must get.
#include <gmock/gmock.h>

#include <cstdio>
#include <regex>

#include "interfaces/optimizer.h"
#include "plugin/note.h"
#include "plugin/support.h"

namespace gannet::plugin {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;
using testing::HasSubstr;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

std::string one_line(const std::string& text) { return std::regex_replace(text, std::regex("\\s+"), " "); }

// {file}: the plugin; {host torch}, {host cuda}: fields of this host's fingerprint.
std::string expected(const std::string& name, const std::string& file) {
  std::string text = replaced(test::read_file(fs::path(EXPECTED_FOLDER) / (name + ".txt")), "{file}", file);
  const std::string fingerprint = host_fingerprint() + "," + vendor_of_libtorch() + ",";
  for (const std::string field : {"torch", "cuda"}) {
    const size_t begin = fingerprint.find(field + "=") + field.size() + 1;
    text = replaced(text, "{host " + field + "}", fingerprint.substr(begin, fingerprint.find(',', begin) - begin));
  }
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

// A user's steps with a plugin: open it, give it params, make an object.
void use(const std::string& file) {
  Registry registry({});
  const Host host;
  for (const Plugin* plugin : registry.open_file(file)) {
    Optimizer optimizer(*plugin, parse_params(*plugin, {}, {}), host);
    optimizer.describe({});
  }
}

class BadPlugin : public testing::TestWithParam<std::string> {};

TEST_P(BadPlugin, GetsItsSentence) {
  const std::string file = (fs::canonical(BAD_FOLDER) / (GetParam() + ".so")).string();
  ASSERT_TRUE(fs::exists(file));
  const auto error = test::error_of([&] { use(file); });
  EXPECT_EQ(error.what(), expected(GetParam(), file));
  const bool is_fault = error.next_step().find("this is a fault of the plugin") == 0;
  EXPECT_EQ(error.exit_code(), is_fault ? 71 : error.code() == ErrorCode::kUnavailable ? 3 : 2);
}

// The second attempt must fail as the first did: nothing half-open is kept.
TEST_P(BadPlugin, GetsItAgain) {
  const std::string file = (fs::canonical(BAD_FOLDER) / (GetParam() + ".so")).string();
  const std::string first = test::error_of([&] { use(file); }).what();
  EXPECT_EQ(test::error_of([&] { use(file); }).what(), first);
}

std::vector<std::string> names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(EXPECTED_FOLDER))
    if (entry.path().stem().extension() != ".build") names.push_back(entry.path().stem().string());
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, BadPlugin, testing::ValuesIn(names()), [](const auto& info) { return info.param; });

TEST(BadPlugins, AFolderOfThemHidesNoGoodPlugin) {
  const test::Environment path("GANNET_PLUGIN_PATH", BAD_FOLDER);
  Registry registry({});
  EXPECT_NE(registry.find(GANNET_KIND_ACCELERATOR, "cpu"), nullptr);
  EXPECT_THAT(test::error_of([&] { registry.require(GANNET_KIND_SCHEDULER, "none"); }).message(),
              HasSubstr("other_abi.so is built for plugin ABI 3.4"));
}

// The verdict of check_plugin.cmake on a plugin that was just linked, and whether a later build can
// find it.
void expect_refused_by_the_build(const std::string& name) {
  const TemporaryFolder folder;
  const auto copy = folder / (name + ".so");
  fs::copy_file(fs::path(BAD_FOLDER) / (name + ".so"), copy);
  const std::string command = "'" CMAKE_PROGRAM "' -DPLUGIN='" + copy.string() +
                              "' -DNM='" NM_PROGRAM "' -DREADELF='" READELF_PROGRAM "' -P '" GANNET_SOURCE_DIR
                              "/sdk/cmake/check_plugin.cmake' 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  std::string text;
  for (int letter; (letter = fgetc(pipe)) != EOF;) text += static_cast<char>(letter);
  EXPECT_NE(pclose(pipe), 0);
  EXPECT_THAT(one_line(text), HasSubstr(one_line(expected(name + ".build", copy.string()))));
  EXPECT_FALSE(fs::exists(copy)) << "a later build must not find it";
}

TEST(CheckPlugin, TheBuildFailsWhenAPluginExportsTooMuch) { expect_refused_by_the_build("exports_two"); }

TEST(CheckPlugin, TheBuildFailsWhenAPluginHasAnAllocatorOfItsOwn) { expect_refused_by_the_build("own_new"); }

}  // namespace
}  // namespace gannet::plugin
