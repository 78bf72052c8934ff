// Where plugins are looked for, and in which order.
#include "plugin/search.h"

#include <gmock/gmock.h>

#include "support.h"

namespace gannet::plugin {
namespace {

namespace fs = std::filesystem;
using test::Environment;
using test::TemporaryFolder;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> first(std::vector<std::string> files, size_t count) {
  files.resize(std::min(files.size(), count));
  return files;
}

TEST(Search, TheConfigComesFirstThenTheVariableThenTheCore) {
  const TemporaryFolder folder;
  for (const char* name : {"config", "one", "two"}) {
    fs::create_directory(folder / name);
    test::write_file(folder / name / "b.so", "");
    test::write_file(folder / name / "a.so", "");
    test::write_file(folder / name / "readme.txt", "");
  }
  const Environment variable("GANNET_PLUGIN_PATH",
                             folder.string() + "/two:" + folder.string() + "/one::" + folder.string() + "/missing");
  const auto found = search({folder.string() + "/config/b.so", folder.string() + "/config"});
  EXPECT_THAT(first(found.files, 6),
              ElementsAre(folder.string() + "/config/b.so", folder.string() + "/config/a.so", folder.string() + "/two/a.so",
                          folder.string() + "/two/b.so", folder.string() + "/one/a.so", folder.string() + "/one/b.so"));
  EXPECT_THAT(found.files, Contains(HasSubstr("/lib/gannet/gannet_accelerator_cpu.so")));
  EXPECT_EQ(found.places[0], folder.string() + "/config/b.so (named by the config)");
  EXPECT_THAT(found.places, Contains(folder.string() + "/missing (GANNET_PLUGIN_PATH, not there)"));
}

TEST(Search, TheCurrentDirectoryIsNotSearchedUnlessAPathSaysSo) {
  const TemporaryFolder folder;
  test::write_file(folder / "here.so", "");
  const fs::path before = fs::current_path();
  fs::current_path(folder.string());
  EXPECT_THAT(search({}).files, Not(Contains(HasSubstr("here.so"))));
  EXPECT_THAT(search({"."}).files, Contains(folder.string() + "/here.so"));
  EXPECT_THAT(search({"here.so"}).files, Contains(folder.string() + "/here.so"));
  fs::current_path(before);
}

TEST(Search, AFileReachedByTwoPathsIsListedOnce) {
  const TemporaryFolder folder;
  test::write_file(folder / "a.so", "");
  fs::create_symlink(folder / "a.so", folder / "link.so");
  EXPECT_THAT(first(search({folder.string(), folder.string() + "/../" + fs::path(folder.string()).filename().string()}).files, 1),
              ElementsAre(folder.string() + "/a.so"));
  EXPECT_THAT(search({folder.string()}).files, Not(Contains(HasSubstr("link.so"))));
}

TEST(Search, APathOfTheConfigThatDoesNotExistIsAnError) {
  const auto error = test::error_of([] { search({"/nowhere/my.so"}); });
  EXPECT_EQ(error.code(), ErrorCode::kPlugin);
  EXPECT_THAT(error.message(), HasSubstr("there is no plugin file or folder '/nowhere/my.so', named by the config"));
}

}  // namespace
}  // namespace gannet::plugin
