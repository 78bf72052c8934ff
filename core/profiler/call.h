// One call of an operator as its rule sees it: shapes and numbers, no tensors, so that nothing lives longer for being counted.
//
//   Call call(op, stack);     // before it runs
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
  int64_t numel = 0;  // elements that are there: of a sparse tensor its values
  bool is_given = false;
  bool is_sparse = false;

  Shape() = default;
  explicit Shape(const at::Tensor& tensor);
  int64_t at(int64_t dimension) const;  // from the end where negative; 1 where there is none
  int64_t last() const { return at(-1); }
};

class Call {
 public:
  Call(const c10::OperatorHandle& op, const torch::jit::Stack& stack);
  void add_results(const torch::jit::Stack& stack);

  const Shape& operator[](const char* argument) const;  // a tensor; not given: elements 0
  std::vector<Shape> list(const char* argument) const;  // of tensors
  std::vector<bool> flags(const char* argument) const;
  bool is(const char* argument) const;  // a bool
  const Shape& first() const;           // the first tensor that is given
  const Shape& result() const;          // the first one
  // Elements that an operator works on where it takes each alone: of its results, or of a sparse argument.
  int64_t elements() const;

 private:
  struct Argument {
    std::vector<Shape> tensors;
    std::vector<bool> flags;
  };
  const Argument* find(const char* name) const;

  // The dispatcher's, of the registered operator.
  const c10::FunctionSchema& schema_;
  // In the order of the schema; an argument that is neither tensor nor bool, or a list of either, is empty.
  std::vector<Argument> arguments_;
  std::vector<Shape> results_;
};

}  // namespace gannet::profiler
