#include "files/pickle_classes.h"

#include <algorithm>
#include <utility>

#include "base/format.h"

namespace gannet::files {
namespace {

using c10::ScalarType;

constexpr std::pair<std::string_view, Role> kClasses[] = {
    {"_codecs.encode", Role::kEncode},
    {"builtins.bytearray", Role::kBytes},
    {"builtins.bytes", Role::kBytes},
    {"builtins.dict", Role::kDict},
    {"builtins.frozenset", Role::kSet},
    {"builtins.list", Role::kList},
    {"builtins.set", Role::kSet},
    {"builtins.tuple", Role::kTuple},
    {"collections.Counter", Role::kDict},
    {"collections.OrderedDict", Role::kDict},
    {"collections.defaultdict", Role::kDict},
    {"copyreg._reconstructor", Role::kReconstruct},
    {"torch.Size", Role::kTuple},
    {"torch._tensor._rebuild_from_type_v2", Role::kSubclass},
    {"torch._utils._rebuild_parameter", Role::kParameter},
    {"torch._utils._rebuild_parameter_with_state", Role::kParameter},
    {"torch._utils._rebuild_tensor", Role::kTensor1},
    {"torch._utils._rebuild_tensor_v2", Role::kTensor2},
    {"torch._utils._rebuild_tensor_v3", Role::kTensor3},
    {"torch.jit._pickle.restore_type_tag", Role::kTyped},
};

// Python's names of the dtypes, and of their storage classes if they have one.
struct PythonDtype {
  std::string_view name, storage;
  ScalarType dtype;
};
constexpr PythonDtype kStorages[] = {
    {"bfloat16", "BFloat16Storage", ScalarType::BFloat16},
    {"bool", "BoolStorage", ScalarType::Bool},
    {"complex128", "ComplexDoubleStorage", ScalarType::ComplexDouble},
    {"complex32", "", ScalarType::ComplexHalf},
    {"complex64", "ComplexFloatStorage", ScalarType::ComplexFloat},
    {"float16", "HalfStorage", ScalarType::Half},
    {"float32", "FloatStorage", ScalarType::Float},
    {"float64", "DoubleStorage", ScalarType::Double},
    {"float4_e2m1fn_x2", "", ScalarType::Float4_e2m1fn_x2},
    {"float8_e4m3fn", "", ScalarType::Float8_e4m3fn},
    {"float8_e4m3fnuz", "", ScalarType::Float8_e4m3fnuz},
    {"float8_e5m2", "", ScalarType::Float8_e5m2},
    {"float8_e5m2fnuz", "", ScalarType::Float8_e5m2fnuz},
    {"float8_e8m0fnu", "", ScalarType::Float8_e8m0fnu},
    {"int16", "ShortStorage", ScalarType::Short},
    {"int32", "IntStorage", ScalarType::Int},
    {"int64", "LongStorage", ScalarType::Long},
    {"int8", "CharStorage", ScalarType::Char},
    {"uint16", "", ScalarType::UInt16},
    {"uint32", "", ScalarType::UInt32},
    {"uint64", "", ScalarType::UInt64},
    {"uint8", "ByteStorage", ScalarType::Byte},
};

struct RefusedRecord {
  std::string_view prefix;
  const char* why;
};
// Records that are found where users expect values, with the reason and the remedy. They are
// matched by prefix, and the first match wins.
constexpr RefusedRecord kRefused[] = {
    {"torch._utils._rebuild_qtensor", "it is a quantised tensor: save its dequantize()"},
    {"torch._utils._rebuild_sparse", "it is a sparse tensor: save its to_dense()"},
    {"torch._utils._rebuild_meta_tensor", "it is a tensor on the meta device, which has no values"},
    {"torch._utils._rebuild_nested", "it is a nested tensor: save its unbind() as a list"},
    {"torch._utils._rebuild_wrapper_subclass",
     "it is a tensor of a subclass: save plain tensors (a DTensor's full_tensor(), for one)"},
    {"torch._utils._rebuild_device_tensor", "it holds another device's tensor as a NumPy array: save its cpu()"},
    {"torch.Q", "it is a storage of quantised values: save dequantize() of its tensors"},
    {"torch.q", "it is a quantised type: save dequantize() of its tensors"},
};

}  // namespace

KnownClass class_of(std::string_view name) {
  for (const auto& [known, role] : kClasses)
    if (name == known) return KnownClass{role};
  if (name == "torch.storage.UntypedStorage" || name == "torch.UntypedStorage")
    return KnownClass{Role::kStorage, ScalarType::Byte};
  if (name.starts_with("torch.")) {
    std::string_view rest = name.substr(6);
    for (const PythonDtype& dtype : kStorages)
      if (rest == dtype.name) return KnownClass{Role::kDtype, dtype.dtype};
    // A GPU storage has the same bytes in the file. Its device is ignored, since values are read
    // into host memory.
    if (rest.starts_with("cuda.")) rest.remove_prefix(5);
    for (const PythonDtype& dtype : kStorages)
      if (!dtype.storage.empty() && rest == dtype.storage) return KnownClass{Role::kStorage, dtype.dtype};
  }
  // Programs, and DeepSpeed itself, store data of any class alongside weights (loss scalers, enums,
  // fragments).
  return KnownClass{Role::kRecord};
}

const char* why_not_read(std::string_view name) {
  for (const RefusedRecord& refused : kRefused)
    if (name.starts_with(refused.prefix)) return refused.why;
  return nullptr;
}

std::optional<DtypeNames> dtype_names(c10::ScalarType dtype) {
  for (const PythonDtype& known : kStorages)
    if (known.dtype == dtype) return DtypeNames{known.name, known.storage};
  return std::nullopt;
}

std::string class_name(std::string_view module, std::string_view name) {
  // These are Python 2 names, which protocols below 3 keep; pickle's fix_imports maps them in the
  // same way.
  if (module == "__builtin__") module = "builtins";
  if (module == "copy_reg") module = "copyreg";
  if (module == "builtins" && name == "unicode") name = "str";
  if (module == "builtins" && name == "long") name = "int";
  return formatted("{}.{}", module, name);
}

}  // namespace gannet::files
