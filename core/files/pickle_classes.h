// The classes and functions that a pickle may name, and the role of each. A call of any other class
// becomes a record of the class's name and the arguments, without behaviour.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <string_view>

namespace gannet::files {

enum class Role {
  kRecord,  // kept as a record of its name, its arguments and its attributes
  kDict,    // collections.OrderedDict and similar classes
  kList,
  kTuple,  // torch.Size and builtins.tuple
  kSet,
  kBytes,        // builtins.bytes and bytearray
  kEncode,       // _codecs.encode, used by old protocols for bytes
  kReconstruct,  // copyreg._reconstructor: makes an object of the class that is its first argument
  kStorage,      // torch.FloatStorage and so on; has `dtype`
  kDtype,        // torch.float32 and so on; has `dtype`; is a record in the data
  kTensor1,
  kTensor2,
  kTensor3,    // torch._utils._rebuild_tensor, _v2, _v3
  kParameter,  // torch._utils._rebuild_parameter, with or without a state
  kSubclass,   // torch._tensor._rebuild_from_type_v2: a tensor with attributes
  kTyped,      // torch.jit._pickle.restore_type_tag, from torch::pickle_save: its first argument, tagged with its type's name
};

struct KnownClass {
  Role role = Role::kRecord;
  c10::ScalarType dtype = c10::ScalarType::Byte;
};

// `name`: "module.class", with Python 2 spellings already replaced. An unknown class is a record.
KnownClass class_of(std::string_view name);
// Returns the reason and the remedy for a tensor of an unsupported kind, such as sparse or
// quantised; null for all other objects.
const char* why_not_read(std::string_view name);
// The names for writing: "float32" and "FloatStorage", or "" if the dtype has no storage class (its
// storage is then untyped). dtype_names() returns nothing for a dtype that PyTorch's files do not
// have.
struct DtypeNames {
  std::string_view dtype, storage;
};
std::optional<DtypeNames> dtype_names(c10::ScalarType dtype);
std::string class_name(std::string_view module, std::string_view name);

}  // namespace gannet::files
