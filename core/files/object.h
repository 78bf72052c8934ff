// What a pickle holds, as inert data: numbers, texts, containers, tensors, and records of classes that are known by name. Nothing
// in it can run. Containers may be shared, as in Python: walk them with a bound in mind. (None contains itself: a file where one
// does is refused.)
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gannet::files {

struct Object;
// Owns nothing in a parsed pickle, whose arena owns every object (pickle.h).
using ObjectRef = std::shared_ptr<const Object>;

// Where a tensor's elements lie: in a storage of the file, which several tensors may share. Checked against the storage's size
// when the file was opened: every element that it names exists.
struct StoredTensor {
  std::string storage;  // the key of its storage in the file
  c10::ScalarType dtype = c10::ScalarType::Float;
  int64_t storage_offset = 0;  // elements
  std::vector<int64_t> sizes, strides;
  bool requires_grad = false;
  bool is_parameter = false;  // a torch.nn.Parameter

  int64_t numel() const;
};

struct Object {
  // `kind` says which of the members below are in use; the others keep their defaults.
  enum class Kind { kNone, kBool, kInt, kNumber, kString, kBytes, kList, kTuple, kSet, kDict, kTensor, kStorage, kRecord };
  Kind kind = Kind::kNone;
  bool boolean = false;
  int64_t integer = 0;
  double number = 0;
  std::string text;              // kString, kBytes; kRecord: the class, "deepspeed.runtime.fp16.loss_scaler.LossScaler"
  std::vector<ObjectRef> items;  // kList, kTuple, kSet; kRecord: what its constructor was given
  std::vector<std::pair<ObjectRef, ObjectRef>> entries;  // kDict, in the file's order; kRecord: its attributes
  StoredTensor tensor;                                   // kTensor; kStorage: the whole of it, flat
  bool is_cut = false;  // kRecord: its attributes refer to itself and were left out; Node refuses to look into it

  // The entry of a dict or record under a text key; null where there is none.
  const Object* find(std::string_view key) const;
  const char* kind_name() const;  // "a dict", "a tensor", "an integer" ... for messages
};

}  // namespace gannet::files
