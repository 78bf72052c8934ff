#include "files/pickle_classes.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/format.h"

namespace gannet::files {
namespace {

using c10::ScalarType;

constexpr std::pair<std::string_view, Role> kClasses[] = {
    {"_codecs.encode", Role::kEncode},
    {"argparse.Namespace", Role::kRecord},  // Megatron's `args`
    {"builtins.bool", Role::kRecord},
    {"builtins.bytearray", Role::kBytes},
    {"builtins.bytes", Role::kBytes},
    {"builtins.complex", Role::kRecord},
    {"builtins.dict", Role::kDict},
    {"builtins.float", Role::kRecord},
    {"builtins.frozenset", Role::kSet},
    {"builtins.int", Role::kRecord},
    {"builtins.list", Role::kList},
    {"builtins.object", Role::kRecord},
    {"builtins.set", Role::kSet},
    {"builtins.str", Role::kRecord},
    {"builtins.tuple", Role::kTuple},
    {"collections.Counter", Role::kDict},
    {"collections.OrderedDict", Role::kDict},
    {"collections.defaultdict", Role::kDict},
    {"copyreg._reconstructor", Role::kReconstruct},
    {"numpy._core.multiarray.scalar", Role::kRecord},
    {"numpy.core.multiarray.scalar", Role::kRecord},
    {"numpy.dtype", Role::kRecord},
    {"pathlib.PosixPath", Role::kRecord},
    {"torch.Size", Role::kTuple},
    {"torch.Tensor", Role::kRecord},
    {"torch._tensor._rebuild_from_type_v2", Role::kSubclass},
    {"torch._utils._rebuild_parameter", Role::kParameter},
    {"torch._utils._rebuild_parameter_with_state", Role::kParameter},
    {"torch._utils._rebuild_tensor", Role::kTensor1},
    {"torch._utils._rebuild_tensor_v2", Role::kTensor2},
    {"torch._utils._rebuild_tensor_v3", Role::kTensor3},
    {"torch.device", Role::kRecord},
    {"torch.nn.parameter.Buffer", Role::kRecord},
    {"torch.nn.parameter.Parameter", Role::kRecord},
    {"torch.serialization._get_layout", Role::kRecord},
};

// Python's names of dtypes, and of the storages that have one.
struct Dtype {
  std::string_view name, storage;
  ScalarType dtype;
};
constexpr Dtype kStorages[] = {
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

struct Refused {
  std::string_view prefix;
  const char* why;
};
// Classes that users do meet: each gets its reason and remedy. Matched by prefix; the first match decides.
constexpr Refused kRefused[] = {
    {"torch.storage._load_from_bytes",
     "it holds a file inside the pickle, as pickle.dump writes tensors: save it with torch.save"},
    {"torch._utils._rebuild_qtensor", "it is a quantised tensor: save its dequantize()"},
    {"torch._utils._rebuild_sparse", "it is a sparse tensor: save its to_dense()"},
    {"torch._utils._rebuild_meta_tensor", "it is a tensor on the meta device, which has no values"},
    {"torch._utils._rebuild_nested", "it is a nested tensor: save its unbind() as a list"},
    {"torch._utils._rebuild_wrapper_subclass",
     "it is a tensor of a subclass: save plain tensors (a DTensor's full_tensor(), for one)"},
    {"torch._utils._rebuild_device_tensor", "it holds another device's tensor as a NumPy array: save its cpu()"},
    {"torch.Q", "it is a storage of quantised values: save dequantize() of its tensors"},
    {"torch.q", "it is a quantised type: save dequantize() of its tensors"},
    {"numpy.", "it is a NumPy array: save torch.from_numpy() of it, or its tolist()"},
    {"transformers.", "it is an object of the library, not weights: save the model's state_dict()"},
    {"torch.nn.", "it is a whole module, not its weights: save module.state_dict()"},
};

// A class's name, possibly dotted: nothing else that a message should not show.
bool is_name(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.'; });
}

}  // namespace

std::optional<KnownClass> known_class(std::string_view name, std::string& refusal) {
  for (const auto& [known, role] : kClasses)
    if (name == known) return KnownClass{role};
  // What DeepSpeed keeps of itself (loss scalers, enums, fragments): data, whichever class of its it is.
  if (name.starts_with("deepspeed.") && is_name(name)) return KnownClass{Role::kRecord};
  if (name == "torch.storage.UntypedStorage" || name == "torch.UntypedStorage")
    return KnownClass{Role::kStorage, ScalarType::Byte};
  if (name.starts_with("torch.")) {
    std::string_view rest = name.substr(6);
    for (const Dtype& dtype : kStorages)
      if (rest == dtype.name) return KnownClass{Role::kDtype, dtype.dtype};
    // A storage of a GPU is written with the same bytes; its device does not matter, as values are read into host memory.
    if (rest.starts_with("cuda.")) rest.remove_prefix(5);
    for (const Dtype& dtype : kStorages)
      if (!dtype.storage.empty() && rest == dtype.storage) return KnownClass{Role::kStorage, dtype.dtype};
  }
  for (const Refused& refused : kRefused)
    if (name.starts_with(refused.prefix)) {
      refusal = refused.why;
      break;
    }
  return std::nullopt;
}

std::optional<DtypeNames> dtype_names(c10::ScalarType dtype) {
  for (const Dtype& known : kStorages)
    if (known.dtype == dtype) return DtypeNames{known.name, known.storage};
  return std::nullopt;
}

std::string class_name(std::string_view module, std::string_view name) {
  // Python 2's names, which protocols below 3 keep; pickle's fix_imports maps them in the same way.
  if (module == "__builtin__") module = "builtins";
  if (module == "copy_reg") module = "copyreg";
  if (module == "builtins" && name == "unicode") name = "str";
  if (module == "builtins" && name == "long") name = "int";
  return formatted("{}.{}", module, name);
}

}  // namespace gannet::files
