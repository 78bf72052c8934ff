#include "checkpoint/weight_source.h"

#include <ATen/ops/empty.h>
#include <gannet/error.h>

#include <filesystem>

#include "base/format.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/export.h"
#include "files/known_folder.h"
#include "files/safetensors_file.h"
#include "files/weight_index.h"

namespace gannet::checkpoint {
namespace {

namespace fs = std::filesystem;
using safetensors::SafetensorsFile;

class SafetensorsSource : public WeightSource {
 public:
  explicit SafetensorsSource(const std::vector<std::string>& paths) {
    for (const std::string& path : paths) files_.emplace_back(path);
    for (const SafetensorsFile& file : files_)
      for (const auto& entry : file.header().entries) {
        tensors_.insert_or_assign(entry.name, Info{entry.shape, entry.dtype});
        places_.insert_or_assign(entry.name, Place{&file, &entry});
      }
  }
  std::vector<at::Tensor> read(const std::vector<std::string>& names) const override {
    std::vector<at::Tensor> values;
    for (const std::string& name : names) values.push_back(places_.at(name).file->read(*places_.at(name).entry));
    return values;
  }

 private:
  struct Place {
    const SafetensorsFile* file;
    const safetensors::Entry* entry;
  };
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Place> places_;
};

class CheckpointSource : public WeightSource {
 public:
  CheckpointSource(const std::string& folder, const std::string& tag) : opened_(open(folder, {tag, {}})) {
    for (const auto& [name, saved] : weights_of(opened_)) {
      tensors_.insert_or_assign(name, Info{saved.shape, saved.dtype});
      saved_names_.insert_or_assign(name, saved.name);
    }
  }
  std::vector<at::Tensor> read(const std::vector<std::string>& names) const override {
    std::vector<at::Tensor> values;
    std::vector<Target> targets;
    for (const std::string& name : names) {
      const Info& info = tensors_.at(name);
      values.push_back(at::empty(info.shape, info.dtype));
      if (values.back().numel() > 0) targets.push_back({saved_names_.at(name), 0, values.back().view({-1})});
    }
    opened_.read(targets);
    return values;
  }

 private:
  Opened opened_;
  std::map<std::string, std::string> saved_names_;
};

// The files that Hugging Face's index names.
std::vector<std::string> shards_of(const fs::path& index) {
  std::vector<std::string> paths;
  for (const auto& [file, names] : files::files_of_index(index.string())) paths.push_back((index.parent_path() / file).string());
  return paths;
}

}  // namespace

std::unique_ptr<WeightSource> open_weights(const std::string& path, const std::string& tag) {
  if (!files::kind_of(path).exists)
    throw Error(ErrorCode::kNotFound, formatted("there is no '{}' to load weights from", path),
                "give a checkpoint folder, a file of safetensors or of torch.save, or a folder of them");
  if (!files::kind_of(path).is_folder) return std::make_unique<SafetensorsSource>(std::vector{path});
  const fs::path whole = fs::path(path) / "model.safetensors", index = fs::path(path) / "model.safetensors.index.json";
  if (files::kind_of(whole.string()).exists) return std::make_unique<SafetensorsSource>(std::vector{whole.string()});
  if (files::kind_of(index.string()).exists) return std::make_unique<SafetensorsSource>(shards_of(index));
  if (!holds_checkpoints(path)) files::refuse_known_folder(path);
  return std::make_unique<CheckpointSource>(path, tag);
}

}  // namespace gannet::checkpoint
