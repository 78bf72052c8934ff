// An immutable in-memory copy of a plugin's file (trust.h).
#include <fcntl.h>
#include <gannet/error.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/format.h"
#include "plugin/elf_file.h"
#include "plugin/trust.h"

namespace gannet::plugin {
namespace {

// Creates a memory file that may hold executable code. Kernels since 6.3 require a flag for that;
// older kernels reject the flag.
int executable_memory() {
  constexpr unsigned kExecutable = 0x10;  // MFD_EXEC
  const int descriptor = ::memfd_create("gannet-plugin", MFD_CLOEXEC | MFD_ALLOW_SEALING | kExecutable);
  return descriptor >= 0 || errno != EINVAL ? descriptor : ::memfd_create("gannet-plugin", MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

[[noreturn]] void refuse_copy(const char* what) {
  throw Error(ErrorCode::kPlugin,
              formatted("is not opened: a copy of it that cannot change could not be {}: {}", what, std::strerror(errno)));
}

void write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::write(descriptor, bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) refuse_copy("written");
    bytes.remove_prefix(static_cast<size_t>(done));
  }
}

}  // namespace

SealedCopy::SealedCopy(const std::string& file) : descriptor_(executable_memory()) {
  if (descriptor_ < 0) refuse_copy("made");
  path_ = formatted("/proc/self/fd/{}", descriptor_);
  try {
    write_all(descriptor_, ElfFile(file).bytes());
    if (::fcntl(descriptor_, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0) refuse_copy("sealed");
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

SealedCopy::~SealedCopy() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace gannet::plugin
