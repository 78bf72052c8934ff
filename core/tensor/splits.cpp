#include "tensor/splits.h"

#include <c10/util/intrusive_ptr.h>

#include <functional>
#include <mutex>
#include <sstream>
#include <unordered_map>

namespace gannet {
namespace {

// While an entry exists, its weak reference keeps the address from being reused by another tensor.
using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

struct ParameterDeclaration {
  Weak parameter;
  std::shared_ptr<const DeclaredSplit> split;
  double divisor = 0;
  std::string tie;
};

struct DeclarationTable {
  std::mutex mutex;
  std::unordered_map<const c10::TensorImpl*, ParameterDeclaration> entries;
};

DeclarationTable& table() {
  static DeclarationTable& instance = *new DeclarationTable;
  return instance;
}

// Requires the table's lock. Removes entries of destroyed parameters.
ParameterDeclaration& entry_of(DeclarationTable& all, const at::Tensor& parameter) {
  std::erase_if(all.entries, [](const auto& entry) { return entry.second.parameter.expired(); });
  return all.entries
      .try_emplace(parameter.unsafeGetTensorImpl(), ParameterDeclaration{Weak(parameter.getIntrusivePtr()), nullptr, 0, ""})
      .first->second;
}

// Returns read(entry) if the parameter has an entry, else `none`.
template <class Value, class Read>
Value read_entry(const at::Tensor& parameter, Value none, const Read& read) {
  DeclarationTable& all = table();
  const std::lock_guard lock(all.mutex);
  const auto found = all.entries.find(parameter.unsafeGetTensorImpl());
  return found == all.entries.end() ? none : read(found->second);
}

// For each box, calls copy() with its view of the whole tensor and its view of the local tensor.
void each_box(const DeclaredSplit& split, const at::Tensor& whole, const at::Tensor& local,
              const std::function<void(const at::Tensor&, const at::Tensor&)>& copy) {
  int64_t at = 0;  // the position in the local tensor along the split's dimension
  for (const Box& box : split.split.boxes) {
    at::Tensor there = whole;
    for (size_t d = 0; d < box.sizes.size(); ++d) there = there.narrow(static_cast<int64_t>(d), box.offsets[d], box.sizes[d]);
    const int64_t length = box.sizes[split.split.dim];
    copy(there, local.narrow(split.split.dim, at, length));
    at += length;
  }
}

}  // namespace

void remember_split(const at::Tensor& parameter, std::shared_ptr<const DeclaredSplit> split, double divisor) {
  DeclarationTable& all = table();
  const std::lock_guard lock(all.mutex);
  ParameterDeclaration& entry = entry_of(all, parameter);
  entry.split = std::move(split);
  entry.divisor = divisor;
}

void remember_tie(const at::Tensor& parameter, const std::string& name) {
  DeclarationTable& all = table();
  const std::lock_guard lock(all.mutex);
  entry_of(all, parameter).tie = name;
}

double divisor_of(const at::Tensor& parameter) {
  return read_entry(parameter, 0.0, [](const ParameterDeclaration& entry) { return entry.divisor; });
}

std::shared_ptr<const DeclaredSplit> split_of(const at::Tensor& parameter) {
  return read_entry(parameter, std::shared_ptr<const DeclaredSplit>(),
                    [](const ParameterDeclaration& entry) { return entry.split; });
}

std::string tie_of(const at::Tensor& parameter) {
  return read_entry(parameter, std::string(), [](const ParameterDeclaration& entry) { return entry.tie; });
}

void copy_from_whole(const DeclaredSplit& split, const at::Tensor& whole, const at::Tensor& local) {
  each_box(split, whole, local, [](const at::Tensor& there, const at::Tensor& here) { here.copy_(there); });
}

void copy_to_whole(const DeclaredSplit& split, const at::Tensor& local, const at::Tensor& whole) {
  each_box(split, whole, local, [](const at::Tensor& there, const at::Tensor& here) { there.copy_(here); });
}

std::string to_text(const DeclaredSplit& split) {
  std::ostringstream text;
  text << split.shape.size() << ' ' << split.split.dim << ' ' << split.split.boxes.size();
  const auto write = [&](const Shape& numbers) {
    for (const int64_t number : numbers) text << ' ' << number;
  };
  write(split.shape);
  for (const Box& box : split.split.boxes) write(box.offsets), write(box.sizes);
  if (split.is_along_expert) text << " expert";
  return text.str();
}

DeclaredSplit split_from_text(const std::string& text) {
  std::istringstream numbers(text);
  DeclaredSplit split;
  size_t dims = 0, boxes = 0;
  numbers >> dims >> split.split.dim >> boxes;
  const auto read = [&](Shape& into) {
    for (into.resize(dims); int64_t& number : into) numbers >> number;
  };
  read(split.shape);
  for (split.split.boxes.resize(boxes); Box & box : split.split.boxes) read(box.offsets), read(box.sizes);
  std::string axis;
  split.is_along_expert = static_cast<bool>(numbers >> axis) && axis == "expert";
  return split;
}

}  // namespace gannet
