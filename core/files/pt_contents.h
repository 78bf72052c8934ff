// What a file of torch.save holds and where each storage's bytes lie, whichever of the two formats it has.
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
  std::map<std::string, StoragePlace> places;  // of every storage that the pickle speaks of, with the size that it tells
  bool is_zip = false;
};

// `memory_bytes`: for what the pickle makes. Throws Error(kCorrupt) and Error(kUnsupported), each with the file and what was
// found.
PtContents read_contents(const Bytes& bytes, uint64_t memory_bytes);

// The format of PyTorch before 1.6, which `_use_new_zipfile_serialization=False` still writes.
PtContents read_legacy(const Bytes& bytes, uint64_t memory_bytes);

}  // namespace gannet::files
