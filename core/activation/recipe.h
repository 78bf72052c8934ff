// Recomputes a tensor that one operator produced. Holds the operator, its arguments, and the state
// under which it ran.
//
//   auto recipe = std::make_shared<Recipe>(op, stack, is_random, notes);   // before the operator runs
//   run();
//   recipe->finish(output);                 // the recipe keeps no large input alive ...
//   if (recipe->can_hold(notes)) recipe->hold(notes);                      // ... until something depends on the recipe
//   at::Tensor same = recipe->output_again(view_of_output);                // any number of times, on any thread
//
// An input that another recipe produces is also recomputed instead of kept, so that a chain of
// recipes keeps only its first inputs. A recipe that is held keeps only inputs that are kept
// elsewhere anyway, or are small. If nothing else keeps an input, the recipe would save no memory
// and cannot be held.
//
// Parameters that are gathered on demand (ZeRO stage 3) are kept without their bytes: the operator
// gathers them when it runs.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "activation/surroundings.h"
#include "activation/version.h"
#include "activation/view.h"

namespace gannet::activation {

class Recipe;

// Facts about the storages of one forward.
class StorageNotes {
 public:
  virtual ~StorageNotes() = default;
  /// Returns the recipe of a tensor's storage; null if there is none, or if the storage was written
  /// afterwards.
  virtual std::shared_ptr<Recipe> recipe_of(const at::Tensor& tensor) const = 0;
  /// Whether the whole storage is kept until backward anyway.
  virtual bool is_kept(const c10::StorageImpl* storage) const = 0;
};

class Recipe {
 public:
  Recipe(const c10::OperatorHandle& op, const std::vector<c10::IValue>& stack, bool is_random, const StorageNotes& notes);
  /// False if storage and strides do not fully describe one of the argument tensors (sparse,
  /// quantized, lazily conjugated).
  bool is_usable() const { return is_usable_; }
  bool is_input(const c10::StorageImpl* storage) const;
  /// Bytes of the largest input's storage.
  size_t input_bytes() const { return input_bytes_; }

  /// Call this after the operator has run.
  void finish(const at::Tensor& output);
  const Version& output_version() const { return output_version_; }
  at::ScalarType output_dtype() const { return output_->dtype; }
  const std::string& operator_name() const { return op_.operator_name().name; }

  bool can_hold(const StorageNotes& notes) const;
  void hold(const StorageNotes& notes);

  /// Both functions run the operator again. The first returns a view of its output, the second the
  /// `index`-th tensor that the operator itself saved for backward.
  at::Tensor output_again(const View& view) const;
  at::Tensor saved_again(size_t index, const View& view) const;

 private:
  struct Input {
    explicit Input(const at::Tensor& tensor);
    at::Tensor tensor;  // undefined: the recipe does not hold the tensor
    WeakStorage storage;
    View view;
    c10::DispatchKeySet keys;
    Version version;
    at::Device device;
    bool requires_grad, is_parameter;
    std::shared_ptr<Recipe> maker;  // null: no recipe produces the input
  };
  void add_input(const at::Tensor& tensor, const StorageNotes& notes);
  bool can_hold(const StorageNotes& notes, int& budget) const;
  static bool can_hold(const Input& input, const StorageNotes& notes, int& budget);
  at::Tensor made_again(const Input& input, bool with_grad) const;
  at::Tensor run(bool with_grad) const;

  const c10::OperatorHandle op_;
  // Stored inline for most operators, because a recipe is created for each operator that runs.
  c10::SmallVector<c10::IValue, 4> arguments_;  // tensors among them are in inputs_, in the same order
  c10::SmallVector<Input, 1> inputs_;
  size_t input_bytes_ = 0;
  std::optional<Surroundings> surroundings_;
  std::optional<View> output_;
  Version output_version_;
  bool is_usable_ = true;
  int cost_ = 0;  // number of operators that run to produce one tensor; 0: not held yet
};

}  // namespace gannet::activation
