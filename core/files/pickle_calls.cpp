// Makes the results of calls to the known classes.
#include <c10/core/ScalarType.h>

#include <algorithm>

#include "base/format.h"
#include "base/text.h"
#include "files/pickle_builder.h"

namespace gannet::files {
namespace {

// Decodes code points below 256 into one byte each, as old protocols store bytes. Returns nothing
// if the text has other code points.
std::optional<std::string> latin1(std::string_view utf8) {
  std::string bytes;
  for (size_t i = 0; i < utf8.size(); ++i) {
    const auto first = static_cast<unsigned char>(utf8[i]);
    if (first < 0x80) {
      bytes += utf8[i];
    } else if ((first == 0xc2 || first == 0xc3) && i + 1 < utf8.size()) {
      bytes += static_cast<char>((first & 3) << 6 | (utf8[++i] & 0x3f));
    } else {
      return std::nullopt;
    }
  }
  return bytes;
}

const PickleObject& item(const PickleObject& arguments, size_t index) {
  return static_cast<const PickleObject&>(*arguments.items[index]);
}

bool is_sequence(const PickleObject& object) { return object.kind == Object::Kind::kTuple || object.kind == Object::Kind::kList; }

}  // namespace

PickleObject* PickleBuilder::call(const PickleObject& callee, const PickleObject& arguments) {
  if (!callee.as_class && callee.kind != Object::Kind::kRecord)
    corrupt(std::string("a class should be here, found ") + callee.kind_name());
  if (arguments.kind != Object::Kind::kTuple)
    corrupt(formatted("the arguments for {} should be a tuple, found {}", shown(callee.text), arguments.kind_name()));
  const size_t count = arguments.items.size();
  const auto container = [&](Object::Kind kind) {
    PickleObject* made = make(kind);
    if (count > 0) add_items_of(*made, item(arguments, 0));
    return made;
  };
  // The result of a callee that was itself made by a call (functools.partial, getattr of a class)
  // is a record as well.
  switch (callee.as_class ? callee.as_class->role : Role::kRecord) {
    case Role::kRecord: {
      PickleObject* record = make(Object::Kind::kRecord, callee.text);
      add_items_of(*record, arguments);
      return record;
    }
    case Role::kDict:
      return dict(callee, arguments);
    case Role::kList:
      return container(Object::Kind::kList);
    case Role::kTuple:
      return container(Object::Kind::kTuple);
    case Role::kSet:
      return container(Object::Kind::kSet);
    case Role::kBytes:
    case Role::kEncode:
      return bytes(arguments);
    case Role::kReconstruct: {
      if (count != 3 || !item(arguments, 0).as_class) corrupt(formatted("{} should be given a class", shown(callee.text)));
      return make(Object::Kind::kRecord, item(arguments, 0).text);
    }
    case Role::kTensor1:
    case Role::kTensor2:
    case Role::kTensor3:
      return tensor(*callee.as_class, arguments);
    case Role::kParameter:
      return parameter(arguments);
    case Role::kSubclass:
      return of_subclass(arguments);
    case Role::kTyped:
      if (count != 2) corrupt(formatted("{} is given {} arguments", shown(callee.text), count));
      return &static_cast<PickleObject&>(const_cast<Object&>(*arguments.items[0]));
    case Role::kStorage:
    case Role::kDtype:
      break;
  }
  corrupt(formatted("{} is called, which torch.save does not do", shown(callee.text)));
}

// Makes a dict from a dict or from a list of pairs. The factory of a defaultdict is dropped.
PickleObject* PickleBuilder::dict(const PickleObject& callee, const PickleObject& arguments) {
  PickleObject* made = make(Object::Kind::kDict);
  if (arguments.items.empty()) return made;
  const PickleObject& of = item(arguments, 0);
  if (of.as_class || of.kind == Object::Kind::kNone) return made;
  if (of.kind == Object::Kind::kDict) {
    add_entries_of(*made, of);
    return made;
  }
  if (!is_sequence(of)) corrupt(formatted("{} is made of {}", shown(callee.text), of.kind_name()));
  for (const ObjectRef& ref : of.items) {
    auto& pair = static_cast<PickleObject&>(const_cast<Object&>(*ref));
    if (!is_sequence(pair) || pair.items.size() != 2)
      corrupt(formatted("{} is given something else than pairs", shown(callee.text)));
    add_entry(*made, const_cast<PickleObject&>(item(pair, 0)), const_cast<PickleObject&>(item(pair, 1)));
  }
  return made;
}

PickleObject* PickleBuilder::bytes(const PickleObject& arguments) {
  if (arguments.items.empty()) return make(Object::Kind::kBytes);
  const PickleObject& of = item(arguments, 0);
  if (of.kind == Object::Kind::kBytes) return make(Object::Kind::kBytes, of.text);
  charge(of.text.size());
  std::optional<std::string> encoded = of.kind == Object::Kind::kString ? latin1(of.text) : std::nullopt;
  if (!encoded) corrupt(formatted("bytes are made of {} that is not a text of single bytes", of.kind_name()));
  return make(Object::Kind::kBytes, std::move(*encoded));
}

// `id` is ('storage', torch.FloatStorage, key, location, numel); the old format adds a view, which
// must be None.
PickleObject* PickleBuilder::storage(const PickleObject& id) {
  if (id.kind != Object::Kind::kTuple || id.items.empty() || item(id, 0).kind != Object::Kind::kString)
    corrupt("a persistent id should be a tuple that begins with 'storage'");
  if (item(id, 0).text == "module")
    unsupported("the file holds a whole module, not its weights", "save module.state_dict() with torch.save");
  if (item(id, 0).text != "storage" || id.items.size() < 5 || id.items.size() > 6)
    corrupt(formatted("a persistent id begins with {} and has {} parts; a storage's has 5 or 6", shown(item(id, 0).text),
                      id.items.size()));
  const PickleObject &type = item(id, 1), &key = item(id, 2), &location = item(id, 3), &numel = item(id, 4);
  if (type.as_class && type.as_class->role == Role::kRecord) {
    const char* why = why_not_read(type.text);
    unsupported(
        formatted("the file holds a storage of {}, which is not read{}{}", shown(type.text), why ? ": " : "", why ? why : ""),
        "load the file in PyTorch and save its tensors in a floating-point type");
  }
  if (!type.as_class || type.as_class->role != Role::kStorage || key.kind != Object::Kind::kString ||
      location.kind != Object::Kind::kString || numel.kind != Object::Kind::kInt)
    corrupt("the parts of a storage's persistent id are not its class, key, device and size");
  if (id.items.size() == 6 && item(id, 5).kind != Object::Kind::kNone)
    unsupported(formatted("the storage {} is a part of another, as PyTorch before 0.4 wrote it", shown(key.text)),
                "load the file in PyTorch and save it again");
  if (location.text.starts_with("meta"))
    unsupported(formatted("the storage {} is on the meta device: it has no values", shown(key.text)),
                "save the model after its weights were made");
  NamedStorage named{numel.integer, static_cast<int64_t>(c10::elementSize(type.as_class->dtype))};
  if (named.numel < 0 || named.numel > INT64_MAX / named.element_bytes)
    corrupt(formatted("the storage {} should have {} elements", shown(key.text), named.numel));
  charge(2 * key.text.size() + 256);
  const auto [known, is_new] = storages_.emplace(key.text, named);
  if (!is_new && known->second.bytes() != named.bytes())
    corrupt(formatted("the storage {} has {} bytes in one place and {} in another", shown(key.text), known->second.bytes(),
                      named.bytes()));
  PickleObject* made = make(Object::Kind::kStorage);
  made->tensor.storage = key.text;
  made->tensor.dtype = type.as_class->dtype;
  made->tensor.sizes = {named.numel};
  made->tensor.strides = {1};
  return made;
}

// The arguments are (storage, offset, sizes, strides, requires_grad, hooks, [dtype,] metadata).
// Later versions of the callee take more of them.
PickleObject* PickleBuilder::tensor(const KnownClass& callee, const PickleObject& arguments) {
  const size_t count = arguments.items.size();
  const bool has_dtype = callee.role == Role::kTensor3;
  const size_t least = callee.role == Role::kTensor1 ? 4 : has_dtype ? 7 : 6;
  if (count < least || count > least + (least > 4)) corrupt(formatted("a tensor is given {} arguments", count));
  const PickleObject &storage = item(arguments, 0), &offset = item(arguments, 1), &sizes = item(arguments, 2),
                     &strides = item(arguments, 3);
  if (storage.kind != Object::Kind::kStorage || offset.kind != Object::Kind::kInt || !is_sequence(sizes) || !is_sequence(strides))
    corrupt("a tensor is not given a storage, an offset, sizes and strides");
  if (least > 4 && item(arguments, 4).kind != Object::Kind::kBool)
    corrupt("whether a tensor requires a gradient should be a boolean");
  if (has_dtype && (!item(arguments, 6).as_class || item(arguments, 6).as_class->role != Role::kDtype))
    corrupt("a tensor is not given a dtype");
  if (count > least && !item(arguments, least).entries.empty())
    unsupported("a tensor is a conjugate or a negative that was not yet computed", "save its resolve_conj().resolve_neg()");
  constexpr size_t kMostDimensions = 64;
  if (sizes.items.size() != strides.items.size() || sizes.items.size() > kMostDimensions)
    corrupt(formatted("a tensor has {} sizes and {} strides", sizes.items.size(), strides.items.size()));

  charge(2 * sizes.items.size() * sizeof(int64_t) + storage.tensor.storage.size());
  PickleObject* made = make(Object::Kind::kTensor);
  StoredTensor& tensor = made->tensor;
  tensor.storage = storage.tensor.storage;
  tensor.dtype = has_dtype ? item(arguments, 6).as_class->dtype : storage.tensor.dtype;
  tensor.storage_offset = offset.integer;
  tensor.requires_grad = least > 4 && item(arguments, 4).boolean;
  tensor.sizes.reserve(sizes.items.size());
  tensor.strides.reserve(sizes.items.size());
  // Every sum and product is compared with a limit before it can overflow.
  const auto element_bytes = static_cast<int64_t>(c10::elementSize(tensor.dtype));
  const int64_t stored = storages_.at(tensor.storage).bytes() / element_bytes;
  int64_t product = element_bytes, last = offset.integer;  // `last`: index of the tensor's last element in the storage
  bool is_empty = false, reaches_past = false;
  if (offset.integer < 0) corrupt(formatted("a tensor begins at element {} of its storage", offset.integer));
  for (size_t i = 0; i < sizes.items.size(); ++i) {
    const PickleObject &size = item(sizes, i), &stride = item(strides, i);
    if (size.kind != Object::Kind::kInt || stride.kind != Object::Kind::kInt || size.integer < 0 || stride.integer < 0)
      corrupt("a tensor's sizes and strides should be integers from 0");
    tensor.sizes.push_back(size.integer);
    tensor.strides.push_back(stride.integer);
    is_empty |= size.integer == 0;
    if (__builtin_mul_overflow(product, std::max<int64_t>(size.integer, 1), &product))
      corrupt("a tensor has more elements than can be counted");
    int64_t reach = 0;
    reaches_past |= __builtin_mul_overflow(std::max<int64_t>(size.integer - 1, 0), stride.integer, &reach) ||
                    __builtin_add_overflow(last, reach, &last);
  }
  if (!is_empty && (reaches_past || last >= stored))
    corrupt(formatted("a tensor of shape {} reaches past the {} elements of its storage {}", shape_text(tensor.sizes), stored,
                      shown(tensor.storage)));
  return made;
}

// The arguments are (tensor, requires_grad, hooks[, state]). The state holds attributes, which are
// left out.
PickleObject* PickleBuilder::parameter(const PickleObject& arguments) {
  const size_t count = arguments.items.size();
  if (count < 3 || count > 4 || item(arguments, 0).kind != Object::Kind::kTensor ||
      item(arguments, 1).kind != Object::Kind::kBool)
    corrupt("a parameter is not given a tensor");
  const StoredTensor& data = item(arguments, 0).tensor;
  charge(2 * data.sizes.size() * sizeof(int64_t) + data.storage.size());
  PickleObject* made = make(Object::Kind::kTensor);
  made->tensor = data;
  made->tensor.requires_grad = item(arguments, 1).boolean;
  made->tensor.is_parameter = true;
  return made;
}

// The arguments are the function that makes the tensor, the tensor's type, the function's
// arguments, and attributes, which are left out.
PickleObject* PickleBuilder::of_subclass(const PickleObject& arguments) {
  if (arguments.items.size() != 4 || !item(arguments, 0).as_class || !item(arguments, 1).as_class)
    corrupt("a tensor with attributes is not given a class");
  const PickleObject& callee = item(arguments, 0);
  const Role role = callee.as_class->role;
  if (role == Role::kRecord) return make(Object::Kind::kRecord, callee.text);  // a sparse, quantised ... tensor: why_not_read()
  if (role != Role::kTensor2 && role != Role::kTensor3 && role != Role::kParameter)
    corrupt(formatted("a tensor with attributes is made by {}", shown(callee.text)));
  return call(callee, item(arguments, 2));
}

}  // namespace gannet::files
