// Exports a checkpoint's weights in the Hugging Face layout: model.safetensors, or shards
// model-00001-of-0000N.safetensors with model.safetensors.index.json; or the same in another format
// (convert/export_pt.h). An export holds one tensor in memory at a time (small ones together, up to
// 64 MiB).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace gannet::checkpoint {

// The source of an export: tensors with their exported names, and a function that reads their
// values.
struct ExportSource {
  struct Tensor {
    std::string name;
    TensorInfo info;  // its name is the one that `read` expects
  };
  std::string path;  // for messages
  std::vector<Tensor> tensors;
  std::vector<std::pair<std::string, std::string>> aliases;  // another name of a tensor, and its name in `tensors`
  std::function<void(const std::vector<Target>&)> read;
};
// Tensors "parameter/<name>" and "buffer/0/<name>" become "<name>". If the mesh has several axes, a
// buffer comes from the first rank "0.<axis><coordinate>" that has it.
std::vector<ExportSource::Tensor> weights_of(const Opened& from);
// Like weights_of(), but replaces each parameter that has a moving average with it. Throws
// Error(kNotFound) if no parameter has one.
std::vector<ExportSource::Tensor> averages_of(const Opened& from);
// `from` must outlive the result.
ExportSource export_source(const Opened& from, bool averages = false);

struct ExportItem {
  const TensorInfo* source;
  std::string name;
  c10::ScalarType dtype;      // dtype in the file
  std::string alias_of = {};  // an earlier item with the same values
  uint64_t bytes() const;
};

// How a shard is written to a file: `write` calls `each`, which passes the shard's tensors to `use`
// in the order of the items, without aliases.
using EachTensor = std::function<void(const std::function<void(const at::Tensor&)>& use)>;
struct ExportFormat {
  std::string stem, extension;  // "model", ".safetensors"
  bool has_aliases;             // false: each tensor has only one name in the file
  std::function<void(const std::string& path, const std::vector<ExportItem>& items, const EachTensor& each)> write;  // syncs too
};
const ExportFormat& safetensors_format();

struct ExportOptions {
  std::optional<c10::ScalarType> dtype = {};  // dtype of floating-point tensors; nullopt: as saved
  uint64_t max_shard_bytes = 5'000'000'000;
  const ExportFormat& format = safetensors_format();
};

struct ExportResult {
  std::vector<std::string> files;
  size_t tensors = 0;
  uint64_t bytes = 0;
  std::vector<std::string> left_out;  // the names that were left out, each with its reason
};

// Files get their final names once all are complete. Throws Error(kArgument) if there is nothing to
// export or `folder` already holds a model, and the errors of reading and writing.
ExportResult export_model(const ExportSource& from, const std::string& folder, const ExportOptions& options);
ExportResult export_model(const Opened& from, const std::string& folder, const ExportOptions& options);
// Writes a single file, whatever its size. Throws like export_model(), and Error(kArgument) if `file` exists.
ExportResult export_file(const ExportSource& from, const std::string& file, const ExportOptions& options);

// Parses "5GB", "500MB", "2GiB" or a number of bytes. Throws Error(kArgument).
uint64_t parse_size(const std::string& text);

}  // namespace gannet::checkpoint
