#include "files/state_dict.h"

#include <gannet/error.h>

#include <filesystem>
#include <set>

#include "base/format.h"
#include "base/text.h"
#include "files/bytes.h"
#include "files/io.h"
#include "files/weight_index.h"

namespace gannet::files {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "pytorch_model.bin";
constexpr const char* kIndex = "pytorch_model.bin.index.json";

bool holds_tensors(const Object& object) {
  if (object.kind != Object::Kind::kDict) return false;
  for (const auto& [key, value] : object.entries)
    if (key->kind == Object::Kind::kString && value->kind == Object::Kind::kTensor) return true;
  return false;
}

// A training program's file has the weights under a name, and perhaps a tensor beside them (the state of a generator).
const Object& weights_in(const Object& root, const std::string& path, std::string& taken_from) {
  for (const char* key : {"module", "model", "state_dict", "model_state_dict"}) {
    const Object* found = root.kind == Object::Kind::kDict ? root.find(key) : nullptr;
    if (!found || !holds_tensors(*found)) continue;
    taken_from = formatted("{}, its entry '{}'", path, key);
    return *found;
  }
  taken_from = path;
  if (holds_tensors(root)) return root;
  std::vector<std::string> keys;
  for (const auto& [key, value] : root.entries)
    if (keys.size() < 10)
      keys.push_back(key->kind == Object::Kind::kString ? formatted("{} ({})", shown(key->text), value->kind_name())
                                                        : key->kind_name());
  throw Error(ErrorCode::kArgument,
              formatted("{} holds no weights: {}", path,
                        root.kind == Object::Kind::kDict ? formatted("neither it nor its 'module', 'model', 'state_dict' or "
                                                                     "'model_state_dict' is a dict of tensors; its keys are {}",
                                                                     join(keys, ", "))
                                                         : formatted("it is {}, not a dict", root.kind_name())),
              formatted("`gannet checkpoint show {}` lists what is in it; save model.state_dict() with torch.save", path));
}

}  // namespace

void add_state_dict(const std::string& path, StateDict& all) {
  auto file = std::make_shared<const PtFile>(PtFile::open(path));
  const Object& weights = weights_in(file->root(), path, all.taken_from);
  for (const auto& [key, value] : weights.entries) {
    if (key->kind != Object::Kind::kString || value->kind != Object::Kind::kTensor)
      ++all.not_tensors;
    else if (!all.tensors.emplace(key->text, StateDict::Tensor{file, value->tensor}).second)
      throw Error(ErrorCode::kCorrupt, formatted("{} has the tensor {}, which another shard has too", path, shown(key->text)),
                  "fetch the folder again");
    else
      all.order.push_back(key->text);
  }
}

bool is_pt_name(const std::string& path) { return path.ends_with(".pt") || path.ends_with(".pth") || path.ends_with(".bin"); }

bool is_pt_folder(const std::string& path) {
  return files::kind_of(formatted("{}/{}", path, kFile)).exists || files::kind_of(formatted("{}/{}", path, kIndex)).exists;
}

StateDict open_state_dict(const std::string& path) {
  StateDict all;
  if (!files::kind_of(path).is_folder) {
    add_state_dict(path, all);
  } else if (files::kind_of(formatted("{}/{}", path, kFile)).exists) {
    add_state_dict((fs::path(path) / kFile).string(), all);
  } else {
    const std::string index = (fs::path(path) / kIndex).string();
    const auto files = files::files_of_index(index);
    for (const auto& [file, names] : files) {
      add_state_dict((fs::path(path) / file).string(), all);
      for (const std::string& name : names)
        if (!all.tensors.count(name))
          throw Error(ErrorCode::kCorrupt, formatted("{} says that '{}' is in {}, where it is not", index, name, file),
                      "fetch the folder again");
    }
    all.taken_from = index;
  }
  return all;
}

}  // namespace gannet::files
