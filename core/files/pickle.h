// Reads a pickle as inert data. A pickle is a program for a stack machine. Only the instructions
// that build data are supported, and a "call" runs no code: pickle_classes.h lists the classes whose
// objects are built, and a call of any other class becomes a record.
//
//   Cursor cursor(bytes, begin, end);
//   const Pickle pickle = unpickle(cursor, {.memory_bytes = pickle_memory(bytes.size())});
//   pickle.root->find("optimizer_state_dict");
//
// The result is a tree, or a DAG with shared branches: nothing contains itself and the depth is at
// most kMaxDepth, so recursion is safe. Walks over shared branches can still be long, so limit
// them.
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
  uint64_t memory_bytes = 0;  // limit for all objects of the pickle; Error(kUnsupported) beyond it
};
// Returns twice the size of the file, with a minimum that is harmless on any machine.
uint64_t pickle_memory(uint64_t file_bytes);

// A storage that the pickle refers to; its values are elsewhere in the file.
struct NamedStorage {
  int64_t numel = 0, element_bytes = 1;
  int64_t bytes() const { return numel * element_bytes; }
};

struct Pickle {
  std::shared_ptr<const void> arena;  // owns every object; ObjectRefs own nothing, so that no chain of them is freed recursively
  const Object* root = nullptr;
  std::map<std::string, NamedStorage> storages;
};

// Reads up to and including the instruction that ends the pickle, and leaves the cursor after it.
// Throws Error(kCorrupt) for contents that no pickler writes, and Error(kUnsupported) for unsupported
// instructions, protocols, storages and tensors, and beyond the limits of memory and depth.
Pickle unpickle(Cursor& cursor, const PickleLimits& limits);

}  // namespace gannet::files
