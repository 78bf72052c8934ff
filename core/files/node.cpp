#include "files/node.h"

#include <ATen/core/Tensor.h>

#include <cmath>

#include "base/format.h"

namespace gannet::files {

Node::Node(std::shared_ptr<const PtFile> file) : file_(std::move(file)), object_(&file_->root()) {}
Node::Node(std::shared_ptr<const PtFile> file, const Object& object, std::string where)
    : file_(std::move(file)), object_(&object), where_(std::move(where)) {}

void Node::refuse(const std::string& expected) const {
  std::string found = object_->kind_name();
  if (is(Object::Kind::kRecord)) found += formatted(" of class {}", object_->text);
  throw Error(ErrorCode::kCorrupt,
              formatted("{}: {} is {}, not {}", file_->path(), where_.empty() ? "its content" : where_, found, expected),
              "was it written by DeepSpeed's save_checkpoint?");
}

// An object that refers to itself was read without its attributes, so it must not be taken for a
// complete one.
void Node::require_whole() const {
  if (object_->is_cut)
    throw Error(ErrorCode::kUnsupported,
                formatted("{}: {}, an object of class {}, contains itself, which is not read", file_->path(),
                          where_.empty() ? "its content" : where_, object_->text),
                "save what is needed of it as a dict of tensors and numbers");
}

std::optional<Node> Node::find(std::string_view key) const {
  if (!has_entries()) refuse("a dict");
  require_whole();
  const Object* found = object_->find(key);
  if (!found || found->kind == Object::Kind::kNone) return {};
  return Node(file_, *found, where_.empty() ? std::string(key) : formatted("{}.{}", where_, key));
}

Node Node::at(std::string_view key) const {
  if (auto found = find(key)) return *found;
  throw Error(ErrorCode::kCorrupt, formatted("{}: there is no '{}' in {}", file_->path(), key, where_.empty() ? "it" : where_),
              "was it written by DeepSpeed's save_checkpoint?");
}

std::vector<std::pair<std::string, Node>> Node::entries(size_t* others) const {
  if (!has_entries()) refuse("a dict");
  require_whole();
  std::vector<std::pair<std::string, Node>> all;
  for (const auto& [key, value] : object_->entries) {
    if (!key || !value) refuse("a dict of whole entries");
    const bool is_name = key->kind == Object::Kind::kString || key->kind == Object::Kind::kInt;
    if (!is_name && others) {
      ++*others;
      continue;
    }
    if (!is_name) refuse(formatted("a dict with texts for keys (one is {})", key->kind_name()));
    std::string name = key->kind == Object::Kind::kString ? key->text : std::to_string(key->integer);
    std::string where = where_.empty() ? name : formatted("{}.{}", where_, name);
    all.emplace_back(std::move(name), Node(file_, *value, std::move(where)));
  }
  return all;
}

std::vector<Node> Node::items() const {
  if (!is_sequence() && !is(Object::Kind::kRecord)) refuse("a list");
  require_whole();
  std::vector<Node> all;
  for (size_t i = 0; i < object_->items.size(); ++i) {
    if (!object_->items[i]) refuse("a list of whole items");
    all.push_back(Node(file_, *object_->items[i], formatted("{}[{}]", where_, i)));
  }
  return all;
}

bool Node::boolean() const {
  if (!is(Object::Kind::kBool)) refuse("a boolean");
  return object_->boolean;
}

int64_t Node::integer() const {
  if (is(Object::Kind::kInt)) return object_->integer;
  if (is(Object::Kind::kBool)) return object_->boolean;
  if (is(Object::Kind::kRecord) && object_->items.size() == 1) return items()[0].integer();
  const double value = is(Object::Kind::kNumber) || is_tensor() ? number() : 0.5;
  if (!(value >= -0x1p62 && value <= 0x1p62) || value != std::floor(value)) refuse("an integer");
  return static_cast<int64_t>(value);
}

double Node::number() const {
  if (is(Object::Kind::kNumber)) return object_->number;
  if (is(Object::Kind::kInt)) return static_cast<double>(object_->integer);
  const auto is_number = [](c10::ScalarType type) {
    return c10::isFloatingType(type) || c10::isIntegralType(type, /*includeBool=*/true);
  };
  if (is_tensor() && tensor().numel() == 1 && is_number(tensor().dtype)) return file_->read(tensor()).item().toDouble();
  refuse("a number");
}

const std::string& Node::text() const {
  if (!is(Object::Kind::kString)) refuse("a text");
  return object_->text;
}

const StoredTensor& Node::tensor() const {
  if (!is_tensor()) refuse("a tensor");
  return object_->tensor;
}

std::vector<int64_t> Node::shape() const {
  std::vector<Node> sizes = items();
  if (is(Object::Kind::kRecord) && sizes.size() == 1 && sizes[0].is_sequence()) sizes = sizes[0].items();
  std::vector<int64_t> shape;
  for (const Node& size : sizes) {
    shape.push_back(size.integer());
    if (shape.back() < 0) size.refuse("a size");
  }
  return shape;
}

}  // namespace gannet::files
