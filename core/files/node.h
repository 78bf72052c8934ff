// A position in the content of a PyTorch file. A Node knows its path from the root, for errors
// about a missing entry or a wrong type:
//
//   const Node root(file);                              // shares the file, because pieces of tensors are read later
//   int64_t steps = root.at("global_steps").integer();
//   // Error(kCorrupt): "a.pt: global_steps is a string, not an integer"
#pragma once

#include <gannet/error.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "files/pt_file.h"

namespace gannet::files {

class Node {
 public:
  explicit Node(std::shared_ptr<const PtFile> file);

  const Object& object() const { return *object_; }
  const std::shared_ptr<const PtFile>& file() const { return file_; }
  const std::string& where() const { return where_; }  // "optimizer_state_dict.partition_count[0]"

  bool is(Object::Kind kind) const { return object_->kind == kind; }
  bool is_none() const { return is(Object::Kind::kNone); }
  bool is_tensor() const { return is(Object::Kind::kTensor); }
  bool is_sequence() const { return is(Object::Kind::kList) || is(Object::Kind::kTuple); }
  bool has_entries() const { return is(Object::Kind::kDict) || is(Object::Kind::kRecord); }

  // For a dict or an object. find() returns nothing if there is no such entry, or if it is None.
  Node at(std::string_view key) const;
  std::optional<Node> find(std::string_view key) const;
  // Returns integer keys as digits. All other non-string keys are refused or, if `others` is given,
  // skipped and counted in it.
  std::vector<std::pair<std::string, Node>> entries(size_t* others = nullptr) const;

  std::vector<Node> items() const;  // the items of a list or tuple, or an object's arguments

  bool boolean() const;
  int64_t integer() const;  // also for a boolean, an integral float, an enumerator or a one-element tensor
  double number() const;
  const std::string& text() const;
  const StoredTensor& tensor() const;
  std::vector<int64_t> shape() const;  // for a torch.Size or a list

  [[noreturn]] void refuse(const std::string& expected) const;  // throws Error(kCorrupt) with what was found and expected

 private:
  Node(std::shared_ptr<const PtFile> file, const Object& object, std::string where);
  void require_whole() const;
  std::shared_ptr<const PtFile> file_;
  // The object is in the arena of file_, which keeps it alive.
  const Object* object_;
  std::string where_;
};

}  // namespace gannet::files
