// A checkpoint's weights as Hugging Face lays them out: model.safetensors, or shards model-00001-of-0000N.safetensors with
// model.safetensors.index.json; or the same in another format (convert/export_pt.h). One tensor is in memory at a time (small
// ones together, up to 64 MiB).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace gannet::checkpoint {

// What is exported: tensors by the names that they get, and how their values are read.
struct ExportSource {
  struct Tensor {
    std::string name;
    TensorInfo info;  // its name is what `read` knows it by
  };
  std::string path;  // for messages
  std::vector<Tensor> tensors;
  std::vector<std::pair<std::string, std::string>> aliases;  // another name of a tensor, and the one above
  std::function<void(const std::vector<Target>&)> read;
};
// Tensors "parameter/<name>" and "buffer/0/<name>" become "<name>"; where the ranks have several axes, the first of the data
// axis' ranks "0.<axis><coordinate>" that has a buffer of that name.
std::vector<ExportSource::Tensor> weights_of(const Opened& from);
// Likewise with their moving averages in the place of parameters that have one. Error(kNotFound): no parameter has.
std::vector<ExportSource::Tensor> averages_of(const Opened& from);
// `from` must outlive it.
ExportSource export_source(const Opened& from, bool averages = false);

struct ExportItem {
  const TensorInfo* source;
  std::string name;
  c10::ScalarType dtype;      // that it is written in
  std::string alias_of = {};  // an earlier item, whose values it shares
  uint64_t bytes() const;
};

// How a shard becomes a file. `each` gives its tensors one after the other, in the order of the items, aliases left out.
using EachTensor = std::function<void(const std::function<void(const at::Tensor&)>& use)>;
struct ExportFormat {
  std::string stem, extension;  // "model", ".safetensors"
  bool has_aliases;             // else a tensor has one name in it
  std::function<void(const std::string& path, const std::vector<ExportItem>& items, const EachTensor& each)> write;  // synced
};
const ExportFormat& safetensors_format();

struct ExportOptions {
  std::optional<c10::ScalarType> dtype = {};  // of floating-point tensors; else as they were saved
  uint64_t max_shard_bytes = 5'000'000'000;
  const ExportFormat& format = safetensors_format();
};

struct Exported {
  std::vector<std::string> files;
  size_t tensors = 0;
  uint64_t bytes = 0;
  std::vector<std::string> left_out;  // each with its reason
};

// The files appear under their names once all are whole. Throws Error(kArgument) where there is nothing to export or `folder`
// holds a model already, else as reading and writing do.
Exported export_model(const ExportSource& from, const std::string& folder, const ExportOptions& options);
Exported export_model(const Opened& from, const std::string& folder, const ExportOptions& options);
// One file of that name, however large. Throws Error(kArgument) where it is there already.
Exported export_file(const ExportSource& from, const std::string& file, const ExportOptions& options);

// "5GB", "500MB", "2GiB" or a number of bytes. Throws Error(kArgument).
uint64_t parse_size(const std::string& text);

}  // namespace gannet::checkpoint
