#include "profiler/call.h"

#include <ATen/SparseTensorImpl.h>

#include <algorithm>

namespace gannet::profiler {
namespace {

const Shape kNone;

}  // namespace

Shape::Shape(const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  is_given = true;
  sizes = tensor.sizes().vec();
  is_sparse = tensor.is_sparse();
  numel = is_sparse ? static_cast<at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl())->values().numel() : tensor.numel();
}

int64_t Shape::at(int64_t dimension) const {
  const auto count = static_cast<int64_t>(sizes.size());
  if (dimension < 0) dimension += count;
  return dimension >= 0 && dimension < count ? sizes[static_cast<size_t>(dimension)] : 1;
}

Call::Call(const c10::OperatorHandle& op, const torch::jit::Stack& stack) : schema_(op.schema()) {
  const size_t count = schema_.arguments().size();
  if (stack.size() < count) return;
  for (size_t i = 0; i < count; ++i) {
    const c10::IValue& value = stack[stack.size() - count + i];
    Argument argument;
    if (value.isTensor()) {
      argument.tensors.emplace_back(value.toTensor());
    } else if (value.isBool()) {
      argument.flags.push_back(value.toBool());
    } else if (value.isBoolList()) {
      for (const bool flag : value.toBoolList()) argument.flags.push_back(flag);
    } else if (value.isList()) {
      for (const c10::IValue& element : value.toListRef())
        if (element.isTensor()) argument.tensors.emplace_back(element.toTensor());
    }
    arguments_.push_back(std::move(argument));
  }
}

void Call::add_results(const torch::jit::Stack& stack) {
  const size_t count = schema_.returns().size();
  for (size_t i = 0; i < count && count <= stack.size(); ++i) {
    const c10::IValue& value = stack[stack.size() - count + i];
    if (value.isTensor())
      results_.emplace_back(value.toTensor());
    else if (value.isTensorList())
      for (const at::Tensor& tensor : value.toTensorVector()) results_.emplace_back(tensor);
  }
}

const Call::Argument* Call::find(const char* name) const {
  for (size_t i = 0; i < arguments_.size(); ++i)
    if (schema_.arguments()[i].name() == name) return &arguments_[i];
  return nullptr;
}

const Shape& Call::operator[](const char* name) const {
  const Argument* found = find(name);
  return found && !found->tensors.empty() ? found->tensors.front() : kNone;
}

std::vector<Shape> Call::list(const char* name) const {
  const Argument* found = find(name);
  return found ? found->tensors : std::vector<Shape>();
}

std::vector<bool> Call::flags(const char* name) const {
  const Argument* found = find(name);
  return found ? found->flags : std::vector<bool>();
}

bool Call::is(const char* name) const {
  const auto flags = this->flags(name);
  return !flags.empty() && flags.front();
}

const Shape& Call::first() const {
  for (const Argument& argument : arguments_)
    for (const Shape& shape : argument.tensors)
      if (shape.is_given) return shape;
  return kNone;
}

const Shape& Call::result() const { return results_.empty() ? kNone : results_.front(); }

int64_t Call::elements() const {
  for (const Argument& argument : arguments_)
    for (const Shape& shape : argument.tensors)
      if (shape.is_sparse) return shape.numel;
  return results_.empty() ? first().numel : result().numel;
}

}  // namespace gannet::profiler
