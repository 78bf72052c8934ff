// Describes one operator call for its rule. It holds shapes and flags but no tensors, so that
// counting does not extend a tensor's lifetime.
//
//   Call call(op, stack);     // before the operator runs
//   call.add_results(stack);  // after
//   call.result().numel * call["mat1"].last();
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <string>
#include <vector>

namespace gannet::profiler {

struct Shape {
  std::vector<int64_t> sizes;
  int64_t numel = 0;  // number of stored elements; for a sparse tensor, of its values
  bool is_given = false;
  bool is_sparse = false;

  Shape() = default;
  explicit Shape(const at::Tensor& tensor);
  int64_t at(int64_t dimension) const;  // a negative index counts from the end; 1 if there is no such dimension
  int64_t last() const { return at(-1); }
};

class Call {
 public:
  Call(const c10::OperatorHandle& op, const torch::jit::Stack& stack);
  void add_results(const torch::jit::Stack& stack);

  const Shape& operator[](const char* argument) const;  // a tensor argument; it has 0 elements if it was not given
  std::vector<Shape> list(const char* argument) const;  // a list of tensors
  std::vector<bool> flags(const char* argument) const;
  bool is(const char* argument) const;  // a bool argument
  const Shape& first() const;           // the first given tensor
  const Shape& result() const;          // the first result
  // The number of elements that an elementwise operator works on: those of a sparse argument, else of
  // the result, else of the first given tensor.
  int64_t elements() const;

 private:
  struct Argument {
    std::vector<Shape> tensors;
    std::vector<bool> flags;
  };
  const Argument* find(const char* name) const;

  // The dispatcher owns the schema, as part of the registered operator.
  const c10::FunctionSchema& schema_;
  // The arguments in the order of the schema. The entry is empty for an argument that is neither a
  // tensor nor a bool nor a list of either.
  std::vector<Argument> arguments_;
  std::vector<Shape> results_;
};

}  // namespace gannet::profiler
