#include "checkpoint/weight_source.h"

#include <ATen/ops/empty.h>
#include <gannet/error.h>
#include <gannet/log.h>

#include "base/format.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/export.h"
#include "files/io.h"
#include "files/known_folder.h"
#include "files/weight_files.h"

namespace gannet::checkpoint {
namespace {

class FilesSource : public WeightSource {
 public:
  explicit FilesSource(files::WeightFiles weights) : weights_(std::move(weights)) {
    for (const files::WeightTensor& tensor : weights_.tensors) add(tensor.name, tensor);
    for (const auto& [name, listed] : weights_.aliases) add(name, *places_.at(listed));
  }
  std::vector<at::Tensor> read(const std::vector<std::string>& names) const override {
    std::vector<at::Tensor> values;
    for (const std::string& name : names) {
      const files::WeightTensor& tensor = *places_.at(name);
      values.push_back(at::empty(tensor.shape, tensor.dtype));
      if (tensor.numel > 0) tensor.bytes->copy_out(0, values.back().nbytes(), static_cast<char*>(values.back().data_ptr()));
    }
    return values;
  }

 private:
  void add(const std::string& name, const files::WeightTensor& tensor) {
    tensors_.insert_or_assign(name, Info{tensor.shape, tensor.dtype});
    places_.insert_or_assign(name, &tensor);
  }
  files::WeightFiles weights_;
  std::map<std::string, const files::WeightTensor*> places_;
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

}  // namespace

std::unique_ptr<WeightSource> open_weights(const std::string& path, const std::string& tag) {
  if (!files::kind_of(path).exists)
    throw Error(ErrorCode::kNotFound, formatted("there is no '{}' to load weights from", path),
                "give a checkpoint folder, a file of safetensors or of torch.save, or a folder of them");
  if (!files::kind_of(path).is_folder || files::is_weights_folder(path)) {
    files::WeightFiles weights = files::open_weight_files(path);
    if (weights.taken_from != path) log_info(formatted("weights of {}", weights.taken_from));
    return std::make_unique<FilesSource>(std::move(weights));
  }
  if (!holds_checkpoints(path)) files::refuse_known_folder(path);
  return std::make_unique<CheckpointSource>(path, tag);
}

}  // namespace gannet::checkpoint
