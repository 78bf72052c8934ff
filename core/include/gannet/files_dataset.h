/// Samples that are stored in files, for models whose inputs have names.
///
///   auto data = std::make_shared<gannet::FilesDataset>("train/");        // train/input_ids.npy, train/labels.npy
///   auto loader = gannet::make_loader<gannet::NamedBatch>(data, gannet::stack_named, {.batch_size = 8});
///
/// `path` is one of
///   a folder of .npy files     one for each input, under its name: [samples, ...]
///   a .safetensors file        a tensor for each input, under its name: [samples, ...], read into memory
///   a .npy file of one dimension, a .bin file of uint16 (little-endian)
///                              tokens, cut to samples of sequence_length: input_ids, and labels with the same values, as
///                              models of transformers take them. What does not fill a sample at the end is left out.
/// Files are read when a sample is asked for, so that the data may be larger than memory.
#pragma once

#include <gannet/named_batch.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gannet {

struct FilesDatasetOptions {
  int64_t sequence_length = 0;  ///< of tokens; 0: the files are not tokens
};

class FilesDataset {
 public:
  /// Throws Error(kNotFound) if there is nothing at `path`; Error(kArgument) for a folder without .npy files, inputs
  /// with different numbers of samples, and tokens without a sequence_length or with fewer tokens than one sample;
  /// Error(kCorrupt) and Error(kUnsupported) from the readers of the files.
  explicit FilesDataset(const std::string& path, const FilesDatasetOptions& options = {});
  ~FilesDataset();

  int64_t size() const;
  /// Sample `index`, without a dimension of samples. Several threads may call it at once.
  NamedBatch get(int64_t index) const;
  std::vector<std::string> names() const;

 private:
  struct Files;
  std::unique_ptr<const Files> files_;
};

}  // namespace gannet
