// The pickle of a torch.save file and the offset of each storage's bytes, in either of the two
// formats.
#pragma once

#include <map>
#include <string>

#include "files/bytes.h"
#include "files/pickle.h"

namespace gannet::files {

struct StoragePlace {
  uint64_t offset = 0, bytes = 0;
};

struct PtContents {
  Pickle pickle;
  std::map<std::string, StoragePlace> places;  // every storage that the pickle refers to, with the size that it declares
  bool is_zip = false;
};

// `memory_bytes` limits the pickle's objects. Throws Error(kCorrupt) and Error(kUnsupported), each
// with the file and what was found.
PtContents read_contents(const Bytes& bytes, uint64_t memory_bytes);

// The format of PyTorch before 1.6, which `_use_new_zipfile_serialization=False` still writes.
PtContents read_legacy(const Bytes& bytes, uint64_t memory_bytes);

}  // namespace gannet::files
