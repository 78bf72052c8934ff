// A pickle as inert data. A pickle is a program for a stack machine; of its instructions these build data, and "calls" reach only
// the classes of pickle_classes.h, none of which runs anything.
//
//   Cursor cursor(bytes, begin, end);
//   const Pickle pickle = unpickle(cursor, {.memory_bytes = pickle_memory(bytes.size())});
//   pickle.root->find("optimizer_state_dict");
//
// What comes out is a tree, or shares branches: nothing contains itself, and nothing lies deeper than kMaxDepth, so that it may
// be walked by recursion. (Walks of shared branches can still be long: bound them.)
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "files/bytes.h"
#include "files/object.h"

namespace gannet::files {

inline constexpr int kMaxDepth = 500;

struct PickleLimits {
  uint64_t memory_bytes = 0;  // for everything that the pickle makes; more is Error(kUnsupported)
};
// Twice the file; a small file may take what harms no machine.
uint64_t pickle_memory(uint64_t file_bytes);

// A storage that the pickle speaks of: its values lie elsewhere in the file.
struct NamedStorage {
  int64_t numel = 0, element_bytes = 1;
  int64_t bytes() const { return numel * element_bytes; }
};

struct Pickle {
  std::shared_ptr<const void>
      arena;  // owns every object: their ObjectRefs own nothing, so that no chain of them is freed by recursion
  const Object* root = nullptr;
  std::map<std::string, NamedStorage> storages;
};

// Reads up to and with the instruction that ends the pickle; the cursor is then behind it. Throws Error(kCorrupt) for what no
// pickler writes, and Error(kUnsupported) for classes that are not known and tensors of other kinds, by name.
Pickle unpickle(Cursor& cursor, const PickleLimits& limits);

}  // namespace gannet::files
