// Finding and opening by kind, name and device.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include "interfaces/optimizer.h"
#include "plugin/plugin.h"
#include "support.h"

namespace gannet::plugin {
namespace {

namespace fs = std::filesystem;
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
  EXPECT_EQ(dlsym(RTLD_DEFAULT, "gannet_plugins_v2"), nullptr);
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

// Built against the header of a later minor, in which every struct has one field more: nothing of it is needed, so it opens.
TEST(Registry, APluginOfALaterMinorIsOpenedAndTrains) {
  Registry registry({.explicit_paths = {LONGER_PLUGIN}});
  const Plugin& plugin = registry.require(GANNET_KIND_OPTIMIZER, "Momentum", "cpu");
  EXPECT_EQ(plugin.descriptor->abi_minor, GANNET_ABI_MINOR + 1);
  EXPECT_GT(plugin.descriptor->struct_size, sizeof(gannet_descriptor));
  const Host host;
  Optimizer momentum(plugin, parse_params(plugin, {{"lr", 0.5}}, {}), host);
  momentum.describe({.tensors = {{"weight", 1, {2}, 2}}});
  ASSERT_EQ(momentum.states().size(), 1u);
  float param[] = {1, 2}, grad[] = {4, 8}, velocity[2] = {};
  void* states[] = {velocity};
  gannet_update_args args{};
  args.struct_size = sizeof(args);
  args.param_dtype = args.grad_dtype = GANNET_FLOAT32;
  args.numel = 2;
  args.param = param;
  args.grad = grad;
  args.states = states;
  args.state_count = 1;
  args.grad_scale = 0.25;
  args.step = 1;
  args.hyper = momentum.hyper_values().data();
  args.hyper_count = 2;
  momentum.update(args);
  EXPECT_EQ(param[0], 0.5f);
  EXPECT_EQ(param[1], 1.0f);
}

// ---- what every user may write -----------------------------------------------------------------------------------------

// A folder with a copy of the probe in it, and what it takes for others to change it.
struct Shared {
  Shared() {
    fs::create_directories(folder / "a/b");
    fs::copy_file(PROBE_PLUGIN, file());
  }
  std::string file() const { return (folder / "a/b/probe.so").string(); }
  void open_to_all(const std::string& name, mode_t mode) const { ASSERT_EQ(chmod((folder / name).c_str(), mode), 0); }
  std::string refusal(std::vector<std::string> allowed = {}) const {
    try {
      Registry registry({.explicit_paths = {file()}, .allowed_paths = std::move(allowed)});
      return registry.require(GANNET_KIND_OPTIMIZER, "probe").file == file() ? "" : "another one was opened";
    } catch (const Error& error) {
      return error.what();
    }
  }
  TemporaryFolder folder;
};

TEST(Registry, AFileThatEveryUserMayWriteIsRefusedUnlessItIsAllowed) {
  const Shared shared;
  EXPECT_EQ(shared.refusal(), "");
  shared.open_to_all("a/b/probe.so", 0666);
  EXPECT_THAT(shared.refusal(), AllOf(HasSubstr("named by the config, is not opened: the file " + shared.file() +
                                                " may be written by every user (mode 0666)"),
                                      HasSubstr("`chmod o-w`"), HasSubstr("\"allow\": [\"" + shared.file() + "\"]")));
  EXPECT_EQ(shared.refusal({shared.file()}), "");
  EXPECT_EQ(shared.refusal({(shared.folder / "a").string()}), "") << "a folder stands for what is below it";
  EXPECT_THAT(shared.refusal({"/usr/lib"}), HasSubstr("may be written by every user"));
  EXPECT_THAT(shared.refusal({(shared.folder / "a/b/pro").string()}), HasSubstr("there is no file or folder"));
}

TEST(Registry, AFolderOnTheWayThatEveryUserMayWriteIsRefusedAStickyOneIsNot) {
  const Shared shared;
  shared.open_to_all("a", 0777);
  EXPECT_THAT(shared.refusal(),
              HasSubstr("the folder " + (shared.folder / "a").string() + " may be written by every user (mode 0777)"));
  EXPECT_EQ(shared.refusal({shared.file()}), "");
  shared.open_to_all("a", 01777);
  EXPECT_EQ(shared.refusal(), "");
}

// A user who may write the folder of a link decides where it leads.
TEST(Registry, AFolderOfALinkCountsAsOneOnTheWay) {
  const Shared shared;
  fs::create_directories(shared.folder / "open");
  fs::create_directories(shared.folder / "mine");
  fs::create_symlink(shared.file(), shared.folder / "open/link.so");
  fs::create_symlink("../open/link.so", shared.folder / "mine/probe.so");
  shared.open_to_all("open", 0777);
  const Environment path("GANNET_PLUGIN_PATH", (shared.folder / "mine").string());
  const auto error = error_of([] { Registry({}).require(GANNET_KIND_OPTIMIZER, "probe"); });
  EXPECT_THAT(error.message(), HasSubstr("the folder " + (shared.folder / "open").string() + " may be written by every user"));
  EXPECT_EQ(Registry({.allowed_paths = {shared.file()}}).require(GANNET_KIND_OPTIMIZER, "probe").file, shared.file());
}

TEST(Registry, AFileOpenedByItsPathIsJudgedAsOneThatIsFound) {
  const Shared shared;
  shared.open_to_all("a/b", 0777);
  EXPECT_THAT(error_of([&] { Registry({}).open_file(shared.file()); }).message(), HasSubstr("may be written by every user"));
  EXPECT_EQ(Registry({.allowed_paths = {shared.file()}}).open_file(shared.file()).size(), 4u);
}

TEST(Registry, APluginInTheWayOfOneOfGannetsOwnIsNamedOnceWithBothFiles) {
  const TemporaryFolder folder;
  fs::copy_file(fs::path(BAD_FOLDER) / "shadows.so", folder / "mine.so");
  const CapturedLog log;
  for (int i = 0; i < 2; ++i) {
    Registry registry({.explicit_paths = {(folder / "mine.so").string()}});
    EXPECT_EQ(registry.require(GANNET_KIND_OPTIMIZER, "SGD", "cpu").version(), "9.9");
    EXPECT_NO_THROW(registry.require(GANNET_KIND_OPTIMIZER, "Adam", "cpu")) << "of which nothing is said";
  }
  EXPECT_THAT(log.text(),
              testing::MatchesRegex("optimizer plugin 'SGD' for device 'cpu' is taken from " + (folder / "mine.so").string() +
                                    ", which takes precedence over Gannet's own, [^\n]*/lib/gannet/gannet_optimizer_sgd.so\n"));
}

TEST(Registry, TwoOfOneNameInFoldersOfOthersAreNamedOnceWithBothFiles) {
  const TemporaryFolder one, other;
  fs::copy_file(PROBE_PLUGIN, one / "a.so");
  fs::copy_file(PROBE_PLUGIN, one / "b.so");
  fs::copy_file(PROBE_PLUGIN, other / "c.so");
  const CapturedLog log;
  for (int i = 0; i < 2; ++i) {
    Registry registry({.explicit_paths = {one.string(), other.string()}});
    EXPECT_EQ(registry.require(GANNET_KIND_SCHEDULER, "Halving").file, (one / "a.so").string());
  }
  for (const std::string& passed : {(one / "b.so").string(), (other / "c.so").string()}) {
    const std::string line = "scheduler plugin 'Halving' is taken from " + (one / "a.so").string() +
                             ", which takes precedence over the one of the same name in " + passed + "\n";
    const size_t at = log.text().find(line);
    EXPECT_NE(at, std::string::npos) << log.text();
    EXPECT_EQ(log.text().find(line, at + 1), std::string::npos) << "twice";
  }
}

TEST(Registry, OpeningAFileByPathGivesWhateverItProvides) {
  Registry registry({});
  EXPECT_EQ(registry.open_file(PROBE_PLUGIN).size(), 4u);
  EXPECT_THAT(error_of([&] { registry.open_file("/nowhere.so"); }).message(), HasSubstr("there is no plugin file '/nowhere.so'"));
}

}  // namespace
}  // namespace gannet::plugin
