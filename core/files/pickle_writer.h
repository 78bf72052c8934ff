// Makes pickles in protocol 2, as torch.save writes them.
//
//   PickleWriter pickle;                       // {"step": 3, "weight": <a tensor>}
//   pickle.begin_dict();
//   pickle.text("step");
//   pickle.integer(3);
//   pickle.text("weight");
//   pickle.tensor(c10::kFloat, {2, 3}, "0");   // the storage archive/data/0
//   pickle.end_dict();
//   const std::string bytes = pickle.finish();
//
// Within begin_... and end_..., a list and a tuple take values, and the others keys and values in turn.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "files/pt_writer.h"

namespace gannet::files {

class PickleWriter {
 public:
  void none() { bytes_ += 'N'; }
  void boolean(bool value) { bytes_ += value ? '\x88' : '\x89'; }
  void integer(int64_t value);
  void number(double value);
  void text(std::string_view value);
  void global(std::string_view module, std::string_view name);  // a class, a function or a dtype
  void empty_set();
  void begin_list() { bytes_ += "]("; }
  void end_list() { bytes_ += 'e'; }
  void begin_tuple() { bytes_ += '('; }
  void end_tuple() { bytes_ += 't'; }
  void begin_dict() { bytes_ += "}("; }
  void end_dict() { bytes_ += 'u'; }
  void begin_ordered_dict();  // collections.OrderedDict
  void end_ordered_dict() { bytes_ += 'u'; }
  // An object that is made without its constructor, from its attributes.
  void begin_object(std::string_view module, std::string_view name);
  void end_object() { bytes_ += "ub"; }
  // A call of a class or function with these integers as arguments: torch.Size, an enumerator.
  void size(const std::vector<int64_t>& sizes);
  void enumerator(std::string_view module, std::string_view name, int64_t value);
  // A contiguous tensor that begins at the first element of the storage of this key. Throws
  // Error(kUnsupported) for a dtype that PyTorch's files do not have.
  void tensor(c10::ScalarType dtype, const std::vector<int64_t>& shape, const std::string& storage);
  std::string finish();  // the whole pickle; the writer is then empty

 private:
  void integers(const std::vector<int64_t>& values);
  std::string bytes_ = "\x80\x02";
};

// The pickle of a dict of tensors. Storages are named "0", "1" ... in the order of the entries that
// are not same_as another.
std::string pickle_of(const std::vector<PtEntry>& entries);

}  // namespace gannet::files
