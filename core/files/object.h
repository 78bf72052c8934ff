// The content of a pickle as inert data: numbers, strings, containers, tensors, and records of
// other classes. Nothing in it can run. Containers may be shared, as in Python, so limit any walk
// over them. Nothing contains itself: such a list or dict is refused, and a record is cut (is_cut).
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
// A reference to an object; in a parsed pickle it owns nothing, because the arena owns every object
// (pickle.h).
using ObjectRef = std::shared_ptr<const Object>;

// A tensor's view of a storage in the file, which several tensors may share. When the file was
// opened, the view was checked against the storage's size: every element is within the storage.
struct StoredTensor {
  std::string storage;  // the key of its storage in the file
  c10::ScalarType dtype = c10::ScalarType::Float;
  int64_t storage_offset = 0;  // in elements
  std::vector<int64_t> sizes, strides;
  bool requires_grad = false;
  bool is_parameter = false;  // a torch.nn.Parameter

  int64_t numel() const;
};

struct Object {
  // `kind` selects the members below that are in use; the others keep their defaults.
  enum class Kind { kNone, kBool, kInt, kNumber, kString, kBytes, kList, kTuple, kSet, kDict, kTensor, kStorage, kRecord };
  Kind kind = Kind::kNone;
  bool boolean = false;
  int64_t integer = 0;
  double number = 0;
  std::string text;              // kString, kBytes; kRecord: the class, "deepspeed.runtime.fp16.loss_scaler.LossScaler"
  std::vector<ObjectRef> items;  // kList, kTuple, kSet; kRecord: the constructor's arguments
  std::vector<std::pair<ObjectRef, ObjectRef>> entries;  // kDict, in the file's order; kRecord: its attributes
  StoredTensor tensor;                                   // kTensor; kStorage: the whole storage, flat
  bool is_cut = false;  // kRecord: its attributes refer to the record itself and were left out; Node refuses to look into it

  // Returns the entry of a dict or record with this string key; null if there is none.
  const Object* find(std::string_view key) const;
  const char* kind_name() const;  // "a dict", "a tensor", "an integer" ... for messages
};

}  // namespace gannet::files
