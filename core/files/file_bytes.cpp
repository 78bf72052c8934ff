#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/format.h"
#include "files/bytes.h"
#include "files/io.h"

namespace gannet::files {
namespace {

class FileBytes : public Bytes {
 public:
  explicit FileBytes(std::string path) : path_(std::move(path)), file_(files::open_file(path_, O_RDONLY | O_NONBLOCK)) {
    struct stat status{};
    if (::fstat(file_, &status) != 0) files::io_failed("examine", path_, errno);
    if (!S_ISREG(status.st_mode))
      throw Error(ErrorCode::kArgument, formatted("{} is not a file", path_), "give a file that torch.save wrote");
    size_ = status.st_size;
  }
  const std::string& path() const override { return path_; }
  uint64_t size() const override { return size_; }
  void read(char* to, uint64_t bytes, uint64_t offset) const override {
    if (files::read_at(file_, to, bytes, offset)) return;
    throw Error(ErrorCode::kIo, formatted("{}: {} bytes at byte {} cannot be read: the disk failed, or the file became shorter",
                                          path_, bytes, offset));
  }

 private:
  std::string path_;
  files::Descriptor file_;
  uint64_t size_ = 0;
};

}  // namespace

std::unique_ptr<Bytes> open_bytes(const std::string& path) { return std::make_unique<FileBytes>(path); }

}  // namespace gannet::files
