// "plugins": {"trusted": ...}: a file whose SHA-256 the list lacks is refused before any of its code runs.
#include "plugin/trust.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

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
using testing::IsEmpty;
using testing::Not;

// A copy of a plugin, and a list of what is trusted.
struct Home {
  explicit Home(const std::string& plugin = PROBE_PLUGIN) { fs::copy_file(plugin, file()); }
  std::string file() const { return (folder / "mine.so").string(); }
  std::string list() const { return (folder / "trusted").string(); }
  void trust() const {
    TrustList known = TrustList::read_or_empty(list());
    known.add(sha256(test::read_file(file())), file());
    known.write();
  }
  Registry registry(const std::string& trusted) const { return Registry({.explicit_paths = {file()}, .trusted = trusted}); }
  // The plugin's name, or the refusal.
  std::string open() const {
    try {
      return registry(list()).require(GANNET_KIND_OPTIMIZER, "probe").name();
    } catch (const Error& error) {
      return error.what();
    }
  }
  TemporaryFolder folder;
};

TEST(Trust, TheHashIsThatOfSha256sum) {
  // FIPS 180-4's examples, and the empty text.
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Trust, AFileThatIsNotListedIsRefusedWithTheCommandToRun) {
  const Home home;
  TrustList list = TrustList::read_or_empty(home.list());
  list.add(sha256("another file"), "/opt/other.so");
  list.write();
  EXPECT_THAT(home.open(),
              AllOf(HasSubstr("plugin " + home.file() + " is not trusted: its SHA-256, "), HasSubstr("is not in " + home.list()),
                    HasSubstr("`gannet plugins trust --trusted " + home.list() + " " + home.file() + "`")));
}

// Its constructor ends the process with 0: that a child comes to its own exit code is the proof.
TEST(Trust, NothingOfAFileThatIsNotListedRuns) {
  const Home home(std::string(BAD_FOLDER) + "/exits.so");
  TrustList::read_or_empty(home.list()).write();
  const auto refused = [&] {
    Registry registry = home.registry(home.list());
    _exit(error_of([&] { registry.open_file(home.file()); }).message().find("is not trusted") != std::string::npos ? 7 : 1);
  };
  EXPECT_EXIT(refused(), testing::ExitedWithCode(7), "");
}

TEST(Trust, AListedFileOpensFromACopyThatNobodyCanChange) {
  const Home home;
  home.trust();
  Registry registry = home.registry(home.list());
  const Plugin& probe = registry.require(GANNET_KIND_OPTIMIZER, "probe", "cpu");
  EXPECT_EQ(probe.file, home.file());
  EXPECT_EQ(registry.opened().size(), 4u);
  Dl_info info{};
  ASSERT_NE(dladdr(probe.descriptor->api, &info), 0);
  EXPECT_THAT(info.dli_fname, HasSubstr("/proc/self/fd/"));
  EXPECT_NE(truncate(info.dli_fname, 0), 0) << "the copy is sealed";
  // Later changes of the file do not affect the code that runs.
  test::write_file(home.file(), "gone");
  EXPECT_STREQ(probe.descriptor->name, "Probe");
}

TEST(Trust, AListedFileIsTrustedWhereverItLies) {
  const Home home;
  home.trust();
  const TemporaryFolder other;
  fs::copy_file(home.file(), other / "elsewhere.so");
  Registry registry({.explicit_paths = {(other / "elsewhere.so").string()}, .trusted = home.list()});
  EXPECT_EQ(registry.require(GANNET_KIND_OPTIMIZER, "probe").file, (other / "elsewhere.so").string());
}

// The dynamic linker knows libraries by their paths, and a descriptor's number is part of the copy's.
TEST(Trust, TwoListedFilesAreTwoLibraries) {
  const Home first, second(LONGER_PLUGIN);
  first.trust();
  second.trust();
  EXPECT_EQ(first.open(), "Probe");
  EXPECT_EQ(second.registry(second.list()).require(GANNET_KIND_OPTIMIZER, "momentum").name(), "Momentum");
}

TEST(Trust, AFileThatChangedSinceIsRefused) {
  const Home home;
  home.trust();
  std::string bytes = test::read_file(home.file());
  bytes += '\n';  // behind all that a linker reads
  test::write_file(home.file(), bytes);
  EXPECT_THAT(home.open(), HasSubstr("plugin " + home.file() + " has changed since it was trusted"));
  home.trust();
  EXPECT_EQ(home.open(), "Probe");
}

TEST(Trust, AFileThatWasOpenedWithoutAListIsJudgedAllTheSame) {
  const Home home;
  TrustList::read_or_empty(home.list()).write();
  Registry before({.explicit_paths = {home.file()}});
  const Plugin& probe = before.require(GANNET_KIND_OPTIMIZER, "probe");
  EXPECT_THAT(home.open(), HasSubstr("is not trusted"));
  EXPECT_THAT(error_of([&] { home.registry(home.list()).require_trust(probe); }).message(), HasSubstr("is not trusted"));
  home.trust();
  EXPECT_EQ(home.open(), "Probe");
  EXPECT_NO_THROW(home.registry(home.list()).require_trust(probe));
}

TEST(Trust, AFileThatChangedBetweenTwoOpensIsNotTakenForTheOneThatRuns) {
  const Home home;
  home.registry("").require(GANNET_KIND_OPTIMIZER, "probe");
  fs::remove(home.file());
  test::write_file(home.file(), test::read_file(PROBE_PLUGIN) + "\n");
  home.trust();
  EXPECT_THAT(home.open(), HasSubstr("has changed since this process opened it"));
}

TEST(Trust, AutoPassesOverAnAcceleratorThatIsNotListed) {
  const Home home;
  TrustList::read_or_empty(home.list()).write();
  const CapturedLog log;
  EXPECT_THAT(Registry({.trusted = home.list()}).accelerators_best_first(), IsEmpty());
  EXPECT_THAT(log.text(), AllOf(HasSubstr("\"auto\" passes over the accelerator cpu: "), HasSubstr("is not trusted")));
}

// ---- the list --------------------------------------------------------------------------------------------------------------

TEST(Trust, AListThatIsMissingIsAnErrorWithTheCommandThatMakesIt) {
  const Home home;
  EXPECT_THAT(home.open(), AllOf(HasSubstr("there is no list of trusted plugins " + home.list()),
                                 HasSubstr("`gannet plugins trust --trusted " + home.list() + " FILE...`")));
}

TEST(Trust, AListWithALineThatIsNoneIsAnErrorWithItsPlace) {
  const Home home;
  const std::string hash(64, 'a');
  for (const std::string& line :
       {std::string("mine.so"), hash, hash.substr(1) + "  mine.so", hash + " mine.so", "g" + hash.substr(1) + "  x"}) {
    test::write_file(home.list(), "# a comment\n\n" + hash + "  fine.so\n" + line + "\n");
    EXPECT_THAT(home.open(), AllOf(HasSubstr(home.list() + ":4: expected a SHA-256"), HasSubstr(line))) << line;
  }
}

TEST(Trust, AListThatOthersMayWriteIsNotUsed) {
  const Home home;
  home.trust();
  ASSERT_EQ(chmod(home.list().c_str(), 0666), 0);
  EXPECT_THAT(home.open(), AllOf(HasSubstr("is not used: the file " + home.list() + " may be written by every user (mode 0666)"),
                                 HasSubstr("chmod o-w")));
}

TEST(Trust, AListInAFolderThatOthersMayWriteIsNotUsed) {
  const Home home;
  fs::create_directories(home.folder / "open");
  fs::copy_file(home.file(), home.folder / "open/list");
  ASSERT_EQ(chmod((home.folder / "open").c_str(), 0777), 0);
  EXPECT_THAT(error_of([&] { TrustList::read((home.folder / "open/list").string()); }).message(),
              HasSubstr("the folder " + (home.folder / "open").string() + " may be written by every user"));
}

TEST(Trust, TheUsersOwnListIsInTheConfigFolder) {
  const Home home;
  const Environment config("XDG_CONFIG_HOME", home.folder.string());
  EXPECT_EQ(own_trust_list(), home.folder.string() + "/gannet/trusted_plugins");
  const auto error = error_of([&] { home.registry("true"); });
  EXPECT_THAT(error.message(), HasSubstr(own_trust_list()));
  EXPECT_THAT(error.next_step(), AllOf(HasSubstr("`gannet plugins trust FILE...`"), Not(HasSubstr("--trusted"))));
  const Environment relative("XDG_CONFIG_HOME", "here"), user("HOME", "/home/somebody");
  EXPECT_EQ(own_trust_list(), "/home/somebody/.config/gannet/trusted_plugins");
}

TEST(Trust, AFileHasOneHashInTheList) {
  const Home home;
  TrustList list = TrustList::read_or_empty(home.list());
  list.add(sha256("one"), "/a.so");
  list.add(sha256("two"), "/b.so");
  list.add(sha256("three"), "/a.so");
  list.write();
  list = TrustList::read(home.list());
  ASSERT_EQ(list.files().size(), 2u);
  EXPECT_EQ(list.files()[0].file, "/b.so");
  EXPECT_EQ(list.files()[1].hash, sha256("three"));
  EXPECT_TRUE(list.remove("/a.so"));
  EXPECT_TRUE(list.remove(sha256("two")));
  EXPECT_FALSE(list.remove("/a.so"));
}

}  // namespace
}  // namespace gannet::plugin
