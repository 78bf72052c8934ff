// How a tensor that one operator made is made again: the operator, its arguments, and the states that it ran under.
//
//   auto recipe = std::make_shared<Recipe>(op, stack, is_random, notes);   // before the operator runs
//   run();
//   recipe->finish(output);                 // it keeps no large input alive
//   if (recipe->can_hold(notes)) recipe->hold(notes);                      // ... until something depends on it
//   at::Tensor same = recipe->output_again(view_of_output);                // as often as wanted, on any thread
//
// An input that another recipe makes is not kept but made again, too, so that a chain keeps its beginning alone. What holds its
// inputs keeps what somebody else keeps anyway: a recipe whose input nobody keeps would spare nothing, and cannot be held.
//
// Parameters are kept without their bytes where these are gathered on demand (ZeRO stage 3): the operator gathers them when it
// runs.
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

// Of one forward: what is known of its storages.
class Notes {
 public:
  virtual ~Notes() = default;
  /// The recipe of a tensor's storage, if that has not been written into since.
  virtual std::shared_ptr<Recipe> recipe_of(const at::Tensor& tensor) const = 0;
  /// Whether somebody keeps all of it until backward.
  virtual bool is_kept(const c10::StorageImpl* storage) const = 0;
};

class Recipe {
 public:
  Recipe(const c10::OperatorHandle& op, const std::vector<c10::IValue>& stack, bool is_random, const Notes& notes);
  /// A tensor that cannot be kept by its storage and strides (sparse, quantized, lazily conjugated) is among the arguments.
  bool is_usable() const { return is_usable_; }
  bool is_input(const c10::StorageImpl* storage) const;
  /// Bytes of the largest input's storage.
  size_t input_bytes() const { return input_bytes_; }

  /// Ends the operator's run.
  void finish(const at::Tensor& output);
  const Version& output_version() const { return output_version_; }
  at::ScalarType output_dtype() const { return output_->dtype; }
  const std::string& operator_name() const { return op_.operator_name().name; }

  bool can_hold(const Notes& notes) const;
  void hold(const Notes& notes);

  /// Runs the operator again: a view of its output, or the n-th tensor that it saved for backward itself.
  at::Tensor output_again(const View& view) const;
  at::Tensor saved_again(size_t index, const View& view) const;

 private:
  struct Input {
    explicit Input(const at::Tensor& tensor);
    at::Tensor tensor;  // undefined: nobody holds it here
    WeakStorage storage;
    View view;
    c10::DispatchKeySet keys;
    Version version;
    at::Device device;
    bool requires_grad, is_parameter;
    std::shared_ptr<Recipe> maker;  // null: none
  };
  void add_input(const at::Tensor& tensor, const Notes& notes);
  bool can_hold(const Notes& notes, int& budget) const;
  static bool can_hold(const Input& input, const Notes& notes, int& budget);
  at::Tensor made_again(const Input& input, bool with_grad) const;
  at::Tensor run(bool with_grad) const;

  const c10::OperatorHandle op_;
  // In the recipe itself, for most operators: one is made for each that runs.
  c10::SmallVector<c10::IValue, 4> arguments_;  // tensors among them are in inputs_, in this order
  c10::SmallVector<Input, 1> inputs_;
  size_t input_bytes_ = 0;
  std::optional<Surroundings> surroundings_;
  std::optional<View> output_;
  Version output_version_;
  bool is_usable_ = true;
  int cost_ = 0;  // operators that run for one tensor; 0: not held yet
};

}  // namespace gannet::activation
