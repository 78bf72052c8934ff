// The file reader on damaged files: a sentence each, never a crash.
#include <elf.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <random>

#include "plugin/elf_file.h"
#include "plugin/note.h"
#include "support.h"

namespace gannet::plugin {
namespace {

using test::TemporaryFolder;
using testing::AnyOf;
using testing::Contains;
using testing::HasSubstr;
using testing::StartsWith;

Candidate candidate_of(const TemporaryFolder& folder, const std::string& bytes) {
  const auto path = folder / "file.so";
  test::write_file(path, bytes);
  return read_candidate(path.string());
}

TEST(ElfFile, ReadsTheNoteOfAGoodPlugin) {
  const Candidate candidate = read_candidate(PROBE_PLUGIN);
  EXPECT_EQ(candidate.rejected, "");
  EXPECT_EQ(candidate.tier, GANNET_TIER_STABLE);
  EXPECT_EQ(candidate.provides,
            (std::vector<std::string>{"optimizer/probe@cpu", "optimizer/sums", "scheduler/halving", "comm/probe"}));
}

TEST(ElfFile, ListsTheLibrariesThatAFileNeeds) { EXPECT_THAT(ElfFile(PROBE_PLUGIN).needed(), Contains(StartsWith("libc.so"))); }

TEST(ElfFile, RefusesWhatIsNotASharedObject) {
  const TemporaryFolder folder;
  EXPECT_EQ(candidate_of(folder, "").rejected, "is empty");
  EXPECT_EQ(candidate_of(folder, "#!/bin/sh\n").rejected, "is not a shared object (no ELF header)");
  EXPECT_EQ(read_candidate(folder.string()).rejected, "is not a regular file");
  EXPECT_EQ(read_candidate((folder / "none.so").string()).rejected, "cannot be opened: No such file or directory");
}

TEST(ElfFile, RefusesAtOnceWhatWouldMakeItsReaderWait) {
  const TemporaryFolder folder;
  const auto fifo = (folder / "fifo.so").string(), socket_path = (folder / "socket.so").string();
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket_path.c_str(), sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  std::filesystem::create_symlink("/dev/zero", folder / "zero.so");
  const auto began = std::chrono::steady_clock::now();
  for (const auto& path : {fifo, socket_path, std::string("/dev/zero"), (folder / "zero.so").string()})
    EXPECT_EQ(read_candidate(path).rejected, "is not a regular file") << path;
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
  close(socket);
}

TEST(ElfFile, RefusesAFileLargerThanAnyPlugin) {
  const TemporaryFolder folder;
  test::write_file(folder / "file.so", test::read_file(PROBE_PLUGIN));
  std::filesystem::resize_file(folder / "file.so", uintmax_t{5} << 30);  // a hole
  EXPECT_EQ(read_candidate((folder / "file.so").string()).rejected, "has 5 GiB, and no plugin is that large");
}

TEST(ElfFile, RefusesAnotherProcessorAndAnotherWordSize) {
  const TemporaryFolder folder;
  std::string bytes = test::read_file(PROBE_PLUGIN);
  bytes[EI_CLASS] = ELFCLASS32;
  EXPECT_EQ(candidate_of(folder, bytes).rejected, "is a 32-bit file; this program is 64-bit");
  bytes[EI_CLASS] = ELFCLASS64;
  bytes[offsetof(Elf64_Ehdr, e_machine)] = EM_SPARC;
  EXPECT_THAT(candidate_of(folder, bytes).rejected, StartsWith("is built for another kind of processor"));
}

// The section table ends the file, so that any truncation is detected.
TEST(ElfFile, RefusesAFileTruncatedAnywhere) {
  const TemporaryFolder folder;
  const std::string bytes = test::read_file(PROBE_PLUGIN);
  const size_t stride = std::max<size_t>(1, bytes.size() / 199);
  for (size_t size = 5; size + 64 < bytes.size(); size += stride) {
    const auto rejected = candidate_of(folder, bytes.substr(0, size)).rejected;
    ASSERT_THAT(rejected, HasSubstr("truncated")) << "cut to " << size << " bytes";
  }
}

TEST(ElfFile, SurvivesDamageAnywhere) {
  const TemporaryFolder folder;
  const std::string good = test::read_file(PROBE_PLUGIN);
  std::mt19937 random(7);
  for (int round = 0; round < 700; ++round) {
    std::string bytes = good;
    // Half of the damage goes where offsets are: the header and the tables behind it.
    for (int i = 0; i < 4; ++i) bytes[random() % (i % 2 ? bytes.size() : 1024)] = static_cast<char>(random());
    const auto path = folder / "file.so";
    test::write_file(path, bytes);
    read_candidate(path.string());
    try {
      ElfFile(path.string()).needed();
    } catch (const Error&) {
    }
  }
}

TEST(ElfFile, FindsTheNoteOfAFileWithoutASectionTable) {
  const TemporaryFolder folder;
  std::string bytes = test::read_file(PROBE_PLUGIN);
  for (size_t i = offsetof(Elf64_Ehdr, e_shoff); i < offsetof(Elf64_Ehdr, e_shoff) + 8; ++i) bytes[i] = 0;
  EXPECT_EQ(candidate_of(folder, bytes).rejected, "");
}

TEST(Fingerprint, TheFirstDifferenceIsNamedByItsField) {
  EXPECT_EQ(fingerprint_difference("torch=2.11.0,cuda=13.0", "torch=2.11.0,cuda=13.0", "ours"), "");
  EXPECT_EQ(fingerprint_difference("torch=2.10.0,cuda=13.0", "torch=2.11.0,cuda=13.0", "ours"),
            "torch is 2.10.0, ours is 2.11.0");
  EXPECT_EQ(fingerprint_difference("torch=2.11.0", "torch=2.11.0,cuda=13.0", "ours"), "cuda is nothing, ours is 13.0");
  EXPECT_EQ(fingerprint_difference("", "torch=1", "ours"), "torch is nothing, ours is 1");
}

}  // namespace
}  // namespace gannet::plugin
