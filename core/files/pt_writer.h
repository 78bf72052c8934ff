// Writes a dict of tensors as torch.save does, for torch.load(weights_only=True) and for PtFile:
//
//   // tied tensors are stored once
//   save_pt("weights.pt", {{"wte.weight", weight}, {"lm_head.weight", weight}, {"ln.bias", bias}});
//
// or one tensor after another, for a dict that does not fit in memory:
//
//   PtWriter writer(path, {{{"module", "wte.weight"}, c10::kFloat, {50257, 768}}, ...});
//   for (...) writer.write(tensor);        // in the order of the entries
//   writer.finish();
#pragma once

#include <ATen/core/Tensor.h>
#include <gannet/safetensors.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "files/io.h"

namespace gannet::files {

struct PtEntry {
  std::vector<std::string> keys;  // {"wte.weight"}, or a path through dicts: {"module", "wte.weight"}
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::vector<int64_t> shape;
  int64_t same_as = -1;  // an earlier entry whose storage this one shares (same dtype and numel); it is not written again
};

class PtWriter {
 public:
  // Creates or overwrites the file. Throws Error(kArgument) for duplicate keys, Error(kUnsupported)
  // for dtypes that PyTorch's files do not have, Error(kIo) if writing fails.
  PtWriter(std::string path, std::vector<PtEntry> entries);
  // The same for an object of any other form: `pickle` names the storage of each entry that is not
  // same_as another by its number among these ("0", "1" ...).
  PtWriter(std::string path, std::vector<PtEntry> entries, const std::string& pickle);
  // Writes the next entry that is not same_as another. The tensor may have any strides and be on any
  // device. Throws Error(kArgument) if its dtype or shape differs, Error(kOrder) if no entry is left.
  void write(const at::Tensor& tensor);
  // Writes the next entry in parts, for a tensor that does not fit in memory: `read` fills elements
  // [begin, begin + into.numel()) of the flattened tensor.
  void write(const std::function<void(int64_t begin, const at::Tensor& into)>& read);
  void finish();  // writes the archive's directory and syncs; throws Error(kOrder) if a tensor is missing

 private:
  struct ZipRecord {
    std::string name;
    uint64_t offset = 0, bytes = 0;  // the header's offset and the content's size
    uint32_t crc = 0;
  };
  const PtEntry& next();  // throws Error(kOrder) if no entry is left
  void add(const std::string& name, const void* content, uint64_t bytes);
  // `part` returns `bytes` bytes from `begin` on; called in order, for parts of at most kPart bytes.
  void add(const std::string& name, uint64_t bytes, const std::function<const char*(uint64_t begin, uint64_t bytes)>& part);

  std::string path_;
  std::vector<PtEntry> entries_;
  files::Descriptor file_;
  // In file order; finish() lists them in the central directory.
  std::vector<ZipRecord> records_;
  // Bytes written so far, which is the offset of the next record's header.
  uint64_t end_ = 0;
  size_t next_ = 0;        // index into entries_
  uint64_t storages_ = 0;  // number of storages written so far
};

// Writes the file completely or not at all: writes it beside `path`, syncs it and renames it. Names
// are keys of one flat dict. Tensors that are the same view of one storage are stored once. Throws
// as PtWriter does.
void save_pt(const std::string& path, const NamedTensors& tensors);

}  // namespace gannet::files
