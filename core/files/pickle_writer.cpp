#include "files/pickle_writer.h"

#include <c10/core/ScalarType.h>
#include <gannet/error.h>

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <utility>

#include "base/format.h"
#include "files/pickle_classes.h"

namespace gannet::files {
namespace {

template <class Number>
void append(std::string& pickle, Number number) {
  pickle.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

// A dict of the file: tensors and dicts under their keys, in the order in which keys first
// appeared.
struct DictBranch {
  std::vector<std::pair<std::string, size_t>> order;  // key, and the index of its entry or branch
  std::map<std::string, size_t> places;               // the index of each key in `order`
  std::vector<bool> is_branch;                        // whether each of `order` is a branch
};

class DictTree {
 public:
  explicit DictTree(const std::vector<PtEntry>& entries) : entries_(entries), branches_(1) {
    uint64_t storages = 0;
    for (size_t i = 0; i < entries.size(); ++i) {
      storages_.push_back(entries[i].same_as < 0 ? std::to_string(storages++)
                                                 : storages_[static_cast<size_t>(entries[i].same_as)]);
      insert(i);
    }
  }

  void write_branch(PickleWriter& pickle, size_t branch) const {
    pickle.begin_dict();
    for (size_t i = 0; i < branches_[branch].order.size(); ++i) {
      const auto& [key, place] = branches_[branch].order[i];
      pickle.text(key);
      if (branches_[branch].is_branch[i])
        write_branch(pickle, place);
      else
        pickle.tensor(entries_[place].dtype, entries_[place].shape, storages_[place]);
    }
    pickle.end_dict();
  }

 private:
  void insert(size_t entry) {
    const std::vector<std::string>& keys = entries_[entry].keys;
    size_t at = 0;
    for (size_t i = 0; i < keys.size(); ++i) {
      const bool is_last = i + 1 == keys.size();
      const auto found = branches_[at].places.find(keys[i]);
      if (found == branches_[at].places.end()) {
        const size_t place = is_last ? entry : branches_.size();
        branches_[at].places.emplace(keys[i], branches_[at].order.size());
        branches_[at].order.emplace_back(keys[i], place);
        branches_[at].is_branch.push_back(!is_last);
        if (is_last) return;
        branches_.emplace_back();
        at = place;
      } else {
        if (is_last || !branches_[at].is_branch[found->second])
          throw Error(ErrorCode::kArgument, formatted("a PyTorch file is to have the key '{}' twice", keys[i]));
        at = branches_[at].order[found->second].second;
      }
    }
    throw Error(ErrorCode::kArgument, "a tensor of a PyTorch file has no key");
  }

  const std::vector<PtEntry>& entries_;
  // [0] is the root dict; the others are in the order in which a key first led to them.
  std::vector<DictBranch> branches_;
  std::vector<std::string> storages_;  // the key of each entry's storage
};

}  // namespace

void PickleWriter::text(std::string_view value) {
  bytes_ += 'X';
  append(bytes_, static_cast<uint32_t>(value.size()));
  bytes_ += value;
}

// BININT1 or BININT if the value fits, otherwise LONG1 with 8 bytes.
void PickleWriter::integer(int64_t value) {
  if (value >= 0 && value < 256) {
    bytes_ += 'K';
    append(bytes_, static_cast<uint8_t>(value));
  } else if (value >= INT32_MIN && value <= INT32_MAX) {
    bytes_ += 'J';
    append(bytes_, static_cast<int32_t>(value));
  } else {
    bytes_ += "\x8a\x08";
    append(bytes_, value);
  }
}

// BINFLOAT has the most significant byte first.
void PickleWriter::number(double value) {
  bytes_ += 'G';
  append(bytes_, __builtin_bswap64(std::bit_cast<uint64_t>(value)));
}

void PickleWriter::global(std::string_view module, std::string_view name) { bytes_ += formatted("c{}\n{}\n", module, name); }

void PickleWriter::empty_set() {
  global("__builtin__", "set");
  bytes_ += "]\x85R";
}

void PickleWriter::begin_ordered_dict() {
  global("collections", "OrderedDict");
  bytes_ += ")R(";
}

void PickleWriter::begin_object(std::string_view module, std::string_view name) {
  global(module, name);
  bytes_ += ")\x81}(";
}

void PickleWriter::integers(const std::vector<int64_t>& values) {
  begin_tuple();
  for (const int64_t value : values) integer(value);
  end_tuple();
}

void PickleWriter::size(const std::vector<int64_t>& sizes) {
  global("torch", "Size");
  integers(sizes);
  bytes_ += "\x85R";
}

void PickleWriter::enumerator(std::string_view module, std::string_view name, int64_t value) {
  global(module, name);
  integer(value);
  bytes_ += "\x85R";
}

// torch._utils._rebuild_tensor_v2(storage, 0, sizes, strides, False, OrderedDict()), or _v3, which
// names the dtype, if no storage class does.
void PickleWriter::tensor(c10::ScalarType dtype, const std::vector<int64_t>& shape, const std::string& storage) {
  const std::optional<DtypeNames> names = dtype_names(dtype);
  if (!names)
    throw Error(ErrorCode::kUnsupported,
                formatted("a tensor of dtype {} cannot be written into a PyTorch file", c10::toString(dtype)),
                "convert it to another dtype");
  const bool typed = !names->storage.empty();
  int64_t numel = 1;
  for (const int64_t size : shape) numel *= size;
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = strides.size(); i-- > 0; stride *= std::max<int64_t>(shape[i], 1)) strides[i] = stride;

  // The outer mark begins the arguments, and the inner one begins the persistent id ('storage',
  // type, key, 'cpu', size) that Q consumes.
  global("torch._utils", typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
  bytes_ += "((";
  text("storage");
  if (typed)
    global("torch", names->storage);
  else
    global("torch.storage", "UntypedStorage");
  text(storage);
  text("cpu");
  integer(typed ? numel : numel * static_cast<int64_t>(c10::elementSize(dtype)));
  bytes_ += "tQ";
  integer(0);
  integers(shape);
  integers(strides);
  boolean(false);
  global("collections", "OrderedDict");
  bytes_ += ")R";
  if (!typed) global("torch", names->dtype);
  bytes_ += "tR";
}

std::string PickleWriter::finish() { return std::exchange(bytes_, "\x80\x02") + "."; }

std::string pickle_of(const std::vector<PtEntry>& entries) {
  PickleWriter pickle;
  DictTree(entries).write_branch(pickle, 0);
  return pickle.finish();
}

}  // namespace gannet::files
