// The classes and functions that a pickle may name, and what each stands for. Everything else is refused by its name.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <string_view>

namespace gannet::files {

enum class Role {
  kRecord,  // kept as a record of its name, its arguments and its attributes
  kDict,    // collections.OrderedDict and its like
  kList,
  kTuple,  // torch.Size and builtins.tuple
  kSet,
  kBytes,        // builtins.bytes and bytearray
  kEncode,       // _codecs.encode: how old protocols write bytes
  kReconstruct,  // copyreg._reconstructor: an object of its first argument's class
  kStorage,      // torch.FloatStorage ...: `dtype`
  kDtype,        // torch.float32 ...: `dtype`; a record in the data
  kTensor1,
  kTensor2,
  kTensor3,    // torch._utils._rebuild_tensor, _v2, _v3
  kParameter,  // torch._utils._rebuild_parameter, with state or without
  kSubclass,   // torch._tensor._rebuild_from_type_v2: a tensor with attributes
};

struct KnownClass {
  Role role = Role::kRecord;
  c10::ScalarType dtype = c10::ScalarType::Byte;
};

// `name`: "module.class", Python 2's spellings already replaced. Empty for a class that is not known; then `refusal` may say why,
// and what to do, where there is more to say than that.
std::optional<KnownClass> known_class(std::string_view name, std::string& refusal);
// The other way, for what is written: "float32", and "FloatStorage" or "" where a dtype has no storage of its own (then its
// storage is untyped). Empty for a dtype that PyTorch's files do not have.
struct DtypeNames {
  std::string_view dtype, storage;
};
std::optional<DtypeNames> dtype_names(c10::ScalarType dtype);
std::string class_name(std::string_view module, std::string_view name);

}  // namespace gannet::files
