#include "files/state_dict.h"

#include <gannet/error.h>

#include <set>

#include "base/format.h"
#include "base/text.h"
#include "files/bytes.h"
#include "files/io.h"
#include "files/pickle_classes.h"

namespace gannet::files {
namespace {

bool holds_tensors(const Object& object) {
  if (object.kind != Object::Kind::kDict) return false;
  for (const auto& [key, value] : object.entries)
    if (key->kind == Object::Kind::kString && value->kind == Object::Kind::kTensor) return true;
  return false;
}

// Whether this is a TorchScript object, which LibTorch's torch::save writes too. Its attributes are
// parameters, buffers and modules, by name.
bool is_script(const Object& object) { return object.kind == Object::Kind::kRecord && object.text.starts_with("__torch__"); }

// A training program's file has the weights under a key, perhaps next to another tensor (a
// generator's state).
const Object& weights_in(const Object& root, const std::string& path, std::string& taken_from) {
  taken_from = path;
  if (is_script(root)) return root;
  for (const char* key : {"module", "model", "state_dict", "model_state_dict"}) {
    const Object* found = root.kind == Object::Kind::kDict ? root.find(key) : nullptr;
    if (!found || !holds_tensors(*found)) continue;
    taken_from = formatted("{}, its entry '{}'", path, key);
    return *found;
  }
  if (holds_tensors(root)) return root;
  std::vector<std::string> keys;
  for (const auto& [key, value] : root.entries)
    if (keys.size() < 10)
      keys.push_back(key->kind == Object::Kind::kString
                         ? formatted("{} ({}{})", shown(key->text), value->kind_name(),
                                     value->kind == Object::Kind::kRecord ? " of class " + shown(value->text) : "")
                         : key->kind_name());
  if (root.kind == Object::Kind::kRecord)
    throw Error(ErrorCode::kUnsupported,
                formatted("{} holds no weights: it is an object of class {}{}", path, shown(root.text),
                          root.find("_parameters") ? ", a whole module" : ""),
                "nothing of the file was run; save model.state_dict() with torch.save");
  throw Error(ErrorCode::kArgument,
              formatted("{} holds no weights: {}", path,
                        root.kind == Object::Kind::kDict ? formatted("neither it nor its 'module', 'model', 'state_dict' or "
                                                                     "'model_state_dict' is a dict of tensors; its keys are {}",
                                                                     join(keys, ", "))
                                                         : formatted("it is {}, not a dict", root.kind_name())),
              formatted("`gannet checkpoint show {}` lists what is in it; save model.state_dict() with torch.save", path));
}

// Collects the weights of one file by their names in it.
class StateDictCollector {
 public:
  StateDictCollector(std::shared_ptr<const PtFile> file, StateDict& all) : file_(std::move(file)), all_(all) {}

  void add(const std::string& name, const Object& value) {
    if (value.kind == Object::Kind::kTensor) {
      if (!all_.tensors.emplace(name, StateDict::Tensor{file_, value.tensor}).second)
        throw Error(ErrorCode::kCorrupt,
                    formatted("{} has the tensor {}, which another shard has too", file_->path(), shown(name)),
                    "fetch the folder again");
      all_.order.push_back(name);
      return;
    }
    // A sparse or quantised tensor is a weight as well; skipping it would lose it silently.
    const char* why = value.kind == Object::Kind::kRecord ? why_not_read(value.text) : nullptr;
    if (why)
      throw Error(
          ErrorCode::kUnsupported,
          formatted("{}: {} is an object of {}, which is not read: {}", file_->path(), shown(name), shown(value.text), why),
          "nothing of the file was run; in a program that trusts it, save what is needed as a dict of tensors");
    ++all_.not_tensors;
  }

  // Adds a module's tensors under names like "layers.0.weight": the modules on the path, then the
  // parameter. Limits the attributes, because a tiny file can name a shared module a million times.
  void add_script(const std::string& prefix, const Object& module) {
    constexpr size_t kMostAttributes = 1'000'000;
    for (const auto& [key, value] : module.entries) {
      if (++attributes_ > kMostAttributes)
        throw Error(ErrorCode::kUnsupported,
                    formatted("{}: its modules have more than {} attributes", file_->path(), kMostAttributes),
                    "save the parameters with gannet::save_weights(*module, \"weights.safetensors\")");
      if (key->kind != Object::Kind::kString) continue;
      // A long name may be on many paths, so the sum of the names' lengths is limited like
      // everything else that is read from the file.
      named_bytes_ += prefix.size() + key->text.size() + 1;
      if (named_bytes_ > file_->most_bytes())
        throw Error(ErrorCode::kUnsupported, formatted("{}: the names of its attributes take more than the file", file_->path()));
      const std::string name = prefix.empty() ? key->text : formatted("{}.{}", prefix, key->text);
      if (is_script(*value))
        add_script(name, *value);
      else
        add(name, *value);
    }
  }

 private:
  std::shared_ptr<const PtFile> file_;
  StateDict& all_;
  size_t attributes_ = 0;
  uint64_t named_bytes_ = 0;
};

// Refuses a TorchScript file without weights. An optimizer saved by torch::save
// (torch/optim/serialize.h) has "pytorch_version", "state" and "param_groups".
void refuse_script(const std::string& path, const Object& root, bool is_empty) {
  if (root.find("param_groups") && root.find("state"))
    throw Error(ErrorCode::kUnsupported,
                formatted("{} holds no weights: it is an optimizer, as LibTorch's torch::save writes it", path),
                "give the file of the module; an optimizer's states are in the checkpoints of engine->save_checkpoint");
  if (is_empty)
    throw Error(
        ErrorCode::kUnsupported,
        formatted("{} holds no weights: it is a TorchScript archive, as torch.jit.save and LibTorch's torch::save write them, "
                  "without a tensor among its attributes (frozen ones are constants of its code)",
                  path),
        "in the C++ program that has the module: torch::load(module, \"" + path +
            "\"); gannet::save_weights(*module, \"weights.safetensors\");");
}

}  // namespace

void add_state_dict(const std::string& path, StateDict& all) {
  const auto file = std::make_shared<const PtFile>(PtFile::open(path));
  const Object& weights = weights_in(file->root(), path, all.taken_from);
  const size_t before = all.order.size();
  StateDictCollector collecting(file, all);
  if (is_script(weights)) {
    collecting.add_script("", weights);
    refuse_script(path, weights, all.order.size() == before);
    return;
  }
  for (const auto& [key, value] : weights.entries) {
    if (key->kind == Object::Kind::kString)
      collecting.add(key->text, *value);
    else
      ++all.not_tensors;
  }
}

bool is_pt_name(const std::string& path) { return path.ends_with(".pt") || path.ends_with(".pth") || path.ends_with(".bin"); }

}  // namespace gannet::files
