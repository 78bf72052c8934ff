// Arbitrary bytes as a plugin's file: read_candidate never throws, and reports whether and why each
// cannot be used. For an ELF file, also everything else that is read from it before it is opened.
#include <gannet/error.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "plugin/elf_file.h"
#include "plugin/note.h"

#ifndef GANNET_FUZZ_REPLAY  // LibTorch itself is not linked
std::string gannet::plugin::vendor_of_libtorch() { return "cuda=0"; }
#endif

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int file = ::memfd_create("fuzzed", MFD_CLOEXEC);
  if (file < 0 || ::write(file, data, size) != static_cast<ssize_t>(size)) std::abort();
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  gannet::plugin::read_candidate(path);
  try {
    const gannet::plugin::ElfFile elf(path);
    elf.needed();
    elf.exported();
  } catch (const gannet::Error&) {
  }
  ::close(file);
  return 0;
}
