#include "launch/file_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace {

using gannet::launch::FileWriter;

// Puts another file in the place of stdout for a while.
class Replaced {
 public:
  explicit Replaced(int file) : kept_(dup(1)) {
    fflush(stdout);
    dup2(file, 1);
  }
  ~Replaced() {
    dup2(kept_, 1);
    close(kept_);
  }

 private:
  int kept_;
};

void drain(FileWriter& writer) {
  for (pollfd event{writer.event(), POLLIN, 0}; writer.pending(1) > 0 && poll(&event, 1, 5000) > 0;) writer.take_event();
}

TEST(FileWriter, WritesInOrder) {
  FILE* const file = std::tmpfile();
  std::string wanted;
  {
    const Replaced out(fileno(file));
    FileWriter writer;
    for (int i = 0; i < 1000; ++i) {
      wanted += std::to_string(i) + '\n';
      writer.write(1, std::to_string(i) + '\n');
    }
  }  // the rest is written by then
  std::string found(wanted.size() + 1, ' ');
  found.resize(static_cast<size_t>(pread(fileno(file), found.data(), found.size(), 0)));
  EXPECT_EQ(found, wanted);
  fclose(file);
}

// A full pipe stands for a file system that does not answer.
TEST(FileWriter, DoesNotWaitForAStalledFile) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const std::string text(4 << 20, 'x');
  {
    const Replaced out(ends[1]);
    close(ends[1]);
    FileWriter writer;
    writer.write(1, text);
    EXPECT_EQ(writer.pending(1), text.size());
    std::string read_back(text.size(), ' ');
    for (size_t done = 0; done < text.size();)
      done += static_cast<size_t>(read(ends[0], read_back.data() + done, text.size() - done));
    drain(writer);
    EXPECT_EQ(writer.pending(1), 0u);
    EXPECT_EQ(read_back, text);
  }
  close(ends[0]);
}

TEST(FileWriter, CountsWhatAFullDiskDrops) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  const Replaced out(full);
  FileWriter writer;
  writer.write(1, "12345");
  drain(writer);
  writer.write(1, "678");
  EXPECT_EQ(writer.failure(1), ENOSPC);
  EXPECT_EQ(writer.failure(2), 0);
  EXPECT_EQ(writer.take_dropped(), 8u);
  close(full);
}

}  // namespace
