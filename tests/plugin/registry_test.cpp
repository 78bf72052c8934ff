// Finding and opening by kind, name and device.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include "plugin/plugin.h"
#include "support.h"

namespace gannet::plugin {
namespace {

using test::CapturedLog;
using test::Environment;
using test::error_of;
using test::TemporaryFolder;
using testing::AllOf;
using testing::HasSubstr;

Registry with_probe() { return Registry({.explicit_paths = {PROBE_PLUGIN}}); }

TEST(Registry, FindsByNameWithoutRegardToCase) {
  Registry registry = with_probe();
  const Plugin& probe = registry.require(GANNET_KIND_OPTIMIZER, "pRoBe", "CPU");
  EXPECT_EQ(probe.name(), "Probe");
  EXPECT_EQ(probe.version(), "1.2.3");
  EXPECT_EQ(probe.device(), "cpu");
  EXPECT_EQ(probe.file, PROBE_PLUGIN);
  EXPECT_EQ(probe.hash.size(), 16u);
  EXPECT_EQ(registry.require(GANNET_KIND_OPTIMIZER, "sums", "cuda").device(), "") << "made for any device";
  EXPECT_EQ(registry.opened().size(), 4u);
}

TEST(Registry, AFileIsOpenedOnceHoweverManyRegistriesAskForIt) {
  Registry first = with_probe(), second = with_probe();
  EXPECT_EQ(&first.require(GANNET_KIND_OPTIMIZER, "probe"), &second.require(GANNET_KIND_OPTIMIZER, "probe"));
}

TEST(Registry, APluginStaysInMemoryAndItsSymbolsAreItsOwn) {
  with_probe().require(GANNET_KIND_OPTIMIZER, "probe");
  void* handle = dlopen(PROBE_PLUGIN, RTLD_NOW | RTLD_NOLOAD);
  EXPECT_NE(handle, nullptr);
  if (handle) dlclose(handle);
  EXPECT_EQ(dlsym(RTLD_DEFAULT, "gannet_plugins_v1"), nullptr);
}

TEST(Registry, NothingOfAFileRunsBeforeItIsAskedFor) {
  const TemporaryFolder folder;
  std::filesystem::copy_file(PROBE_PLUGIN, folder / "copy.so");
  const Environment path("GANNET_PLUGIN_PATH", folder.string());
  Registry registry({});
  EXPECT_EQ(dlopen((folder / "copy.so").c_str(), RTLD_NOW | RTLD_NOLOAD), nullptr);
}

TEST(Registry, TheFirstInSearchOrderWins) {
  const TemporaryFolder folder;
  std::filesystem::copy_file(PROBE_PLUGIN, folder / "copy.so");
  const Environment path("GANNET_PLUGIN_PATH", folder.string());
  EXPECT_EQ(Registry({}).require(GANNET_KIND_OPTIMIZER, "probe").file, (folder / "copy.so").string());
  EXPECT_EQ(with_probe().require(GANNET_KIND_OPTIMIZER, "probe").file, PROBE_PLUGIN);
}

TEST(Registry, AMissingPluginIsExplained) {
  const TemporaryFolder folder;
  test::write_file(folder / "text.so", "hello");
  const Environment path("GANNET_PLUGIN_PATH", folder.string());
  Registry registry = with_probe();
  const auto error = error_of([&] { registry.require(GANNET_KIND_OPTIMIZER, "Prode", "cpu"); });
  EXPECT_EQ(error.code(), ErrorCode::kPlugin);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("there is no optimizer plugin 'Prode' for device 'cpu'; did you mean 'probe'?"),
                                  HasSubstr("found: "), HasSubstr("searched: " PROBE_PLUGIN " (named by the config)"),
                                  HasSubstr(folder.string() + " (GANNET_PLUGIN_PATH)"),
                                  HasSubstr("rejected: " + (folder / "text.so").string() + " is not a shared object"),
                                  HasSubstr("GANNET_PLUGIN_PATH or in the config's")));
  EXPECT_EQ(registry.find(GANNET_KIND_OPTIMIZER, "Prode"), nullptr);
}

TEST(Registry, APluginForAnotherDeviceOnlyIsNamed) {
  Registry registry = with_probe();
  EXPECT_THAT(error_of([&] { registry.require(GANNET_KIND_OPTIMIZER, "probe", "cuda"); }).message(),
              HasSubstr("there is one for cpu"));
}

TEST(Registry, AFileThatTheConfigNamesMustBeUsable) {
  const TemporaryFolder folder;
  test::write_file(folder / "text.so", "hello");
  EXPECT_THAT(error_of([&] { Registry({.explicit_paths = {(folder / "text.so").string()}}); }).message(),
              HasSubstr("text.so, named by the config, is not a shared object (no ELF header)"));
  EXPECT_NO_THROW(Registry({.explicit_paths = {folder.string()}})) << "a folder may hold other things";
}

TEST(Registry, AnUnusableFileIsPassedOverWithAWarning) {
  const TemporaryFolder folder;
  std::string bytes = test::read_file(PROBE_PLUGIN);
  const size_t tier = bytes.find("GNNTPLN1") + 8;  // in the note: the magic, then the tier
  ASSERT_EQ(bytes[tier], GANNET_TIER_STABLE);
  bytes[tier] = GANNET_TIER_PINNED;
  test::write_file(folder / "a.so", bytes);
  const Environment path("GANNET_PLUGIN_PATH", folder.string());
  EXPECT_THAT(error_of([&] { Registry({}).find(GANNET_KIND_OPTIMIZER, "probe"); }).message(),
              HasSubstr("a.so is built for another host: "));
  std::filesystem::copy_file(PROBE_PLUGIN, folder / "b.so");
  const CapturedLog log;
  EXPECT_EQ(Registry({}).require(GANNET_KIND_OPTIMIZER, "probe").file, (folder / "b.so").string());
  EXPECT_THAT(log.text(), HasSubstr("a.so comes first but is built for another host"));
}

TEST(Registry, OpeningAFileByPathGivesWhateverItProvides) {
  Registry registry({});
  EXPECT_EQ(registry.open_file(PROBE_PLUGIN).size(), 4u);
  EXPECT_THAT(error_of([&] { registry.open_file("/nowhere.so"); }).message(), HasSubstr("there is no plugin file '/nowhere.so'"));
}

}  // namespace
}  // namespace gannet::plugin
