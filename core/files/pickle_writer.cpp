#include "files/pickle_writer.h"

#include <c10/core/ScalarType.h>
#include <gannet/error.h>

#include <map>

#include "base/format.h"
#include "files/pickle_classes.h"

namespace gannet::files {
namespace {

template <class Number>
void append(std::string& pickle, Number number) {
  pickle.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

void append_text(std::string& pickle, std::string_view text) {
  pickle += 'X';
  append(pickle, static_cast<uint32_t>(text.size()));
  pickle += text;
}

// Appends BININT1 or BININT if the value fits, otherwise LONG1 with 8 bytes.
void append_integer(std::string& pickle, int64_t value) {
  if (value >= 0 && value < 256) {
    pickle += 'K';
    append(pickle, static_cast<uint8_t>(value));
  } else if (value >= INT32_MIN && value <= INT32_MAX) {
    pickle += 'J';
    append(pickle, static_cast<int32_t>(value));
  } else {
    pickle += "\x8a\x08";
    append(pickle, value);
  }
}

void append_integers(std::string& pickle, const std::vector<int64_t>& values) {
  pickle += '(';
  for (const int64_t value : values) append_integer(pickle, value);
  pickle += 't';
}

// Appends torch._utils._rebuild_tensor_v2(storage, 0, sizes, strides, False, OrderedDict()), or
// _v3, which names the dtype, if no storage class does.
void append_tensor(std::string& pickle, const PtEntry& entry, const std::string& storage) {
  const DtypeNames names = *dtype_names(entry.dtype);
  const bool typed = !names.storage.empty();
  int64_t numel = 1;
  for (const int64_t size : entry.shape) numel *= size;
  std::vector<int64_t> strides(entry.shape.size());
  int64_t stride = 1;
  for (size_t i = strides.size(); i-- > 0; stride *= std::max<int64_t>(entry.shape[i], 1)) strides[i] = stride;

  // The outer mark begins the arguments, and the inner one begins the persistent id ('storage',
  // type, key, 'cpu', size) that Q consumes.
  pickle += typed ? "ctorch._utils\n_rebuild_tensor_v2\n((" : "ctorch._utils\n_rebuild_tensor_v3\n((";
  append_text(pickle, "storage");
  pickle += typed ? formatted("ctorch\n{}\n", names.storage) : "ctorch.storage\nUntypedStorage\n";
  append_text(pickle, storage);
  append_text(pickle, "cpu");
  append_integer(pickle, typed ? numel : numel * static_cast<int64_t>(c10::elementSize(entry.dtype)));
  pickle += "tQ";
  append_integer(pickle, 0);
  append_integers(pickle, entry.shape);
  append_integers(pickle, strides);
  pickle +=
      "\x89"
      "ccollections\nOrderedDict\n)R";
  if (!typed) pickle += formatted("ctorch\n{}\n", names.dtype);
  pickle += "tR";
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

  void append_branch(std::string& pickle, size_t branch) const {
    pickle += "}(";
    for (size_t i = 0; i < branches_[branch].order.size(); ++i) {
      const auto& [key, place] = branches_[branch].order[i];
      append_text(pickle, key);
      if (branches_[branch].is_branch[i])
        append_branch(pickle, place);
      else
        append_tensor(pickle, entries_[place], storages_[place]);
    }
    pickle += 'u';
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

std::string pickle_of(const std::vector<PtEntry>& entries) {
  for (const PtEntry& entry : entries)
    if (!dtype_names(entry.dtype))
      throw Error(ErrorCode::kUnsupported,
                  formatted("a tensor of dtype {} cannot be written into a PyTorch file", c10::toString(entry.dtype)),
                  "convert it to another dtype");
  std::string pickle = "\x80\x02";
  DictTree(entries).append_branch(pickle, 0);
  return formatted("{}.", pickle);
}

}  // namespace gannet::files
