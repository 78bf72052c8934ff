// Finds the inputs of a graph that its steps may write into, including through views and nested
// graphs.
//
// Inputs whose memory may end up in one value, such as the operands that cond() chooses from, count
// as one.
#pragma once

#include <ATen/core/function_schema.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gannet::exported {

struct Operand;

class Writes {
 public:
  explicit Writes(size_t inputs = 0);

  void guard(size_t input) { guarded_[input] = input; }  // before any other call
  // The value in `slot` may share the memory of the value in `of`.
  void add_view(size_t slot, size_t of);
  // Returns the guarded input that a write into `slot` may modify.
  std::optional<size_t> add_write(size_t slot);
  // Records the writes of a nested graph that is called with `operands`, and that its `outputs` may
  // be views of them. Returns a guarded input that it may write into.
  std::optional<size_t> add_call(Writes& nested, std::span<const Operand> operands, const std::vector<Operand>& outputs,
                                 size_t first_result);

 private:
  static constexpr size_t kNone = ~size_t{0};
  size_t input_of(size_t slot) const { return slot < input_of_.size() ? input_of_[slot] : kNone; }
  size_t first_of(size_t input);  // of the inputs that count as one
  void join(size_t one, size_t other);

  std::vector<size_t> input_of_;  // by slot
  std::vector<size_t> joined_;    // by input: an earlier input that it counts as one with, or itself
  std::vector<size_t> guarded_;   // by the representative of the inputs that count as one
  std::vector<bool> is_written_;  // likewise
};

// Whether an operator of this name may return its argument, or a view of it, although its schema
// does not declare it.
bool may_return_argument(std::string_view name);

// The operands that an operator writes into, and those whose memory its results may share.
struct Effects {
  std::vector<size_t> written, viewed;
};
Effects effects_of(const std::string& name, const c10::FunctionSchema& schema, const std::vector<Operand>& operands);

}  // namespace gannet::exported
