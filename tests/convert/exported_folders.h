// Shared by the tests of exports to DeepSpeed: a file's objects as text, and checkpoints that are compared.
#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include <map>
#include <set>

#include "checkpoint/checkpoint.h"
#include "convert/deepspeed.h"
#include "convert/write_deepspeed.h"
#include "files/node.h"
#include "files/support.h"

namespace gannet::convert {

using namespace files;

inline std::string deepspeeds(const std::string& name) {
  return std::string(GANNET_SOURCE_DIR) + "/tests/convert/deepspeed/" + name;
}

inline std::string digits_of(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.contiguous();
  std::string text;
  for (size_t i = 0; i < plain.nbytes(); ++i) {
    char two[3];
    std::snprintf(two, sizeof(two), "%02x", static_cast<const unsigned char*>(plain.const_data_ptr())[i]);
    text += two;
  }
  return text;
}

// Every leaf of a file's object by its path, as text: "optimizer_state_dict/loss_scaler": the class, ".../cur_scale": 1.
class Leaves {
 public:
  explicit Leaves(const std::string& path) : file_(std::make_shared<PtFile>(PtFile::open(path))) { add("", Node(file_)); }
  std::map<std::string, std::string> texts;

 private:
  using Kind = Object::Kind;
  void add(const std::string& path, const Node& node) {
    const Object& object = node.object();
    switch (object.kind) {
      case Kind::kTensor:
        texts[path] = std::string(c10::toString(object.tensor.dtype)) + " " + testing::PrintToString(object.tensor.sizes) + " " +
                      digits_of(file_->read(object.tensor));
        break;
      case Kind::kRecord:
        texts[path] = object.text;
        [[fallthrough]];
      case Kind::kDict:
        if (object.kind == Kind::kDict) texts[path] = "a dict";
        for (const auto& [key, value] : node.entries()) add(path + "/" + key, value);
        break;
      case Kind::kList:
      case Kind::kTuple: {
        texts[path] = "a sequence of " + std::to_string(node.items().size());
        size_t i = 0;
        for (const Node& item : node.items()) add(path + "/" + std::to_string(i++), item);
        break;
      }
      case Kind::kNone:
        texts[path] = "None";
        break;
      case Kind::kBool:
        texts[path] = node.boolean() ? "True" : "False";
        break;
      case Kind::kInt:
        texts[path] = testing::PrintToString(static_cast<double>(node.integer()));
        break;
      case Kind::kNumber:
        texts[path] = testing::PrintToString(node.number());
        break;
      case Kind::kString:
        texts[path] = node.text();
        break;
      default:
        texts[path] = object.kind_name();
    }
  }
  std::shared_ptr<PtFile> file_;
};

class ToDeepSpeed : public FolderTest {
 protected:
  checkpoint::Opened imported(const std::string& from, const std::string& to, const DeepSpeedOptions& options = {}) {
    import_deepspeed(from, file(to), options);
    return checkpoint::open(file(to), {});
  }
  // Whether the two checkpoints have the same parameters, states and buffers, bit for bit, and the same numbers.
  void expect_equal(const checkpoint::Opened& one, const checkpoint::Opened& other) {
    std::set<std::string> names, others;
    for (const auto& tensor : one.tensors()) names.insert(tensor.name);
    for (const auto& tensor : other.tensors()) others.insert(tensor.name);
    EXPECT_EQ(names, others);
    for (const std::string& name : names) {
      const auto read = [&](const checkpoint::Opened& from) {
        const checkpoint::TensorInfo* info = from.find(name);
        at::Tensor tensor = at::empty(info->shape, info->dtype);
        from.read({{name, 0, tensor}});
        return tensor;
      };
      if (other.find(name)) EXPECT_TRUE(at::equal(read(one), read(other))) << name;
    }
    for (const char* key : {"global_steps", "applied_steps", "skipped_steps", "global_samples", "schedule_position", "groups",
                            "loss_scaler", "client_state", "accumulation_steps"})
      EXPECT_EQ(one.document().find(key)->to_json(), other.document().find(key)->to_json()) << key;
  }
};

}  // namespace gannet::convert
