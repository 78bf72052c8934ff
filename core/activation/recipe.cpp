#include "activation/recipe.h"

#include <ATen/core/List.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/as_strided.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <gannet/error.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "activation/saved_tensors.h"
#include "base/format.h"
#include "base/text.h"
#include "params/interception.h"

namespace gannet::activation {
namespace {

using torch::autograd::SavedVariableHooks;

// An input is always held if its size is at most 1 / kSmallShare of the largest input so far, as
// for the weight of a norm or a position mask.
constexpr size_t kSmallShare = 16;
// Inputs of up to this many bytes are copied if nothing else keeps them. The program may then write
// into the original afterwards (a running mean, say), just as it may if the operator saves nothing.
constexpr size_t kCopiedBytes = 16 << 10;
// The maximum number of operators that a chain of recipes may run for one tensor. A longer chain
// keeps a tensor partway along it.
constexpr int kMostOperators = 16;

bool is_copied(const at::Tensor& tensor) {
  return !tensor.requires_grad() && !tensor.unsafeGetTensorImpl()->is_wrapped_number() && tensor.is_non_overlapping_and_dense() &&
         tensor.storage().nbytes() <= kCopiedBytes && !zero::is_watched(storage_impl(tensor));
}

// Captures the `wanted`-th tensor that an operator saves.
class CatchingKeeper : public Keeper {
 public:
  explicit CatchingKeeper(size_t wanted) : wanted_(wanted) {}
  std::unique_ptr<SavedVariableHooks> hooks() override { return std::make_unique<Hooks>(*this); }
  at::Tensor caught;

 private:
  // Hooks for a graph that no backward ever runs through.
  class Hooks : public SavedVariableHooks {
   public:
    explicit Hooks(CatchingKeeper& catching) : catching_(catching) {}
    void call_pack_hook(const at::Tensor& tensor) override {
      if (catching_.count_++ == catching_.wanted_) catching_.caught = without_graph(tensor);
    }
    at::Tensor call_unpack_hook() override { return {}; }

   private:
    CatchingKeeper& catching_;
  };
  const size_t wanted_;
  size_t count_ = 0;
};

[[noreturn]] void throw_differs(const std::string& name) {
  throw Error(ErrorCode::kMismatch,
              formatted("operator {} was run again for backward, and gave another tensor than in the forward", name),
              formatted("take '{}' out of gannet.activation_checkpointing.recompute", name.substr(name.find("::") + 2)));
}

}  // namespace

Recipe::Input::Input(const at::Tensor& tensor)
    : storage(weak_storage(tensor)),
      view(tensor),
      keys(tensor.key_set()),
      version(Version::of(tensor)),
      device(tensor.device()),
      requires_grad(tensor.requires_grad()),
      is_parameter(requires_grad && tensor.is_leaf()) {}

Recipe::Recipe(const c10::OperatorHandle& op, const std::vector<c10::IValue>& stack, bool is_random, const StorageNotes& notes)
    : op_(op) {
  const size_t count = op.schema().arguments().size();
  arguments_.reserve(count);
  for (size_t i = stack.size() - count; i < stack.size(); ++i) {
    const c10::IValue& value = stack[i];
    if (value.isTensor() && value.toTensor().defined()) {
      add_input(value.toTensor(), notes);
      arguments_.emplace_back(at::Tensor());
    } else if (value.isTensor()) {  // an absent optional tensor, such as the weight of a norm that has none, is not an input
      arguments_.emplace_back();
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> places;
      for (const at::Tensor& tensor : value.toTensorVector()) {
        add_input(tensor, notes);
        places.push_back(at::Tensor());
      }
      arguments_.emplace_back(std::move(places));
    } else {
      is_usable_ = is_usable_ && !value.isOptionalTensorList();
      arguments_.push_back(value);
    }
    if (!is_usable_) return;
  }
  std::vector<at::Device> devices;
  for (const Input& input : inputs_)
    if (!input.device.is_cpu()) devices.push_back(input.device);
  surroundings_.emplace(devices, is_random);
}

void Recipe::add_input(const at::Tensor& tensor, const StorageNotes& notes) {
  if (!tensor.defined() || !is_plain(tensor)) {
    is_usable_ = false;
    return;
  }
  Input& input = inputs_.emplace_back(tensor);
  input.maker = notes.recipe_of(tensor);
  input_bytes_ = std::max(input_bytes_, tensor.storage().nbytes());
  // Only these inputs are held at this point. Others are kept elsewhere or not at all.
  if (input.is_parameter || tensor.unsafeGetTensorImpl()->is_wrapped_number() ||
      tensor.storage().nbytes() * kSmallShare <= input_bytes_ || zero::is_watched(storage_impl(tensor)))
    input.tensor = without_graph(tensor);
}

bool Recipe::is_input(const c10::StorageImpl* storage) const {
  return std::any_of(inputs_.begin(), inputs_.end(),
                     [&](const Input& input) { return input.storage._unsafe_get_target() == storage; });
}

void Recipe::finish(const at::Tensor& output) {
  output_.emplace(output);
  output_version_ = Version::of(output);
}

bool Recipe::can_hold(const Input& input, const StorageNotes& notes, int& budget) {
  if (input.tensor.defined()) return !input.version.has_passed();
  if (!input.version.has_passed() && notes.is_kept(input.storage._unsafe_get_target())) return true;
  return input.maker && input.maker->can_hold(notes, budget);
}

bool Recipe::can_hold(const StorageNotes& notes, int& budget) const {
  budget -= std::max(cost_, 1);
  if (budget < 0 || cost_ > 0) return budget >= 0;
  return std::all_of(inputs_.begin(), inputs_.end(), [&](const Input& input) { return can_hold(input, notes, budget); });
}

bool Recipe::can_hold(const StorageNotes& notes) const {
  int budget = kMostOperators;
  return can_hold(notes, budget);
}

void Recipe::hold(const StorageNotes& notes) {
  if (cost_ > 0) return;
  cost_ = 1;
  for (Input& input : inputs_) {
    if (!input.tensor.defined() && !input.version.has_passed() && notes.is_kept(input.storage._unsafe_get_target())) {
      input.tensor = tensor_over(c10::Storage(input.storage.lock()), input.keys, input.view);
    }
    if (input.tensor.defined()) {
      input.maker.reset();
      if (!input.requires_grad && is_copied(input.tensor) && !notes.is_kept(storage_impl(input.tensor))) {
        const at::NoGradGuard no_grad;
        input.tensor = input.tensor.clone();
        input.version = Version::of(input.tensor);
      }
    } else {
      input.maker->hold(notes);
      cost_ += input.maker->cost_;
    }
  }
}

at::Tensor Recipe::made_again(const Input& input, bool with_grad) const {
  if (input.tensor.defined() && input.version.has_passed())
    throw Error(
        ErrorCode::kOrder,
        formatted("operator {} is run again for backward, and its input tensor of {} {} was changed in place since the forward",
                  operator_name(), c10::toString(input.view.dtype), shape_text(input.view.sizes)),
        "use the operator that makes a new tensor (relu for relu_), and call backward before the optimizer's step");
  const at::Tensor tensor = input.tensor.defined() ? input.tensor : input.maker->output_again(input.view);
  return with_grad ? without_graph(tensor).requires_grad_(input.requires_grad) : tensor;
}

at::Tensor Recipe::run(bool with_grad) const {
  std::vector<c10::IValue> stack;
  std::vector<at::Tensor> made;  // the inputs so far
  const auto next_input = [&] {
    const Input& input = inputs_[made.size()];
    for (size_t i = 0; i < made.size(); ++i)  // as in y * y, where both inputs are the same
      if (input.maker && inputs_[i].maker == input.maker && inputs_[i].view == input.view) return made.emplace_back(made[i]);
    return made.emplace_back(made_again(input, with_grad));
  };
  for (const c10::IValue& argument : arguments_) {
    if (argument.isTensorList()) {
      c10::List<at::Tensor> tensors;
      for (size_t i = 0; i < argument.toTensorList().size(); ++i) tensors.push_back(next_input());
      stack.emplace_back(std::move(tensors));
    } else if (argument.isTensor()) {
      stack.emplace_back(next_input());
    } else {
      stack.push_back(argument);
    }
  }
  const SurroundingsScope there(*surroundings_);
  op_.callBoxed(&stack);
  return stack.back().toTensor();
}

at::Tensor Recipe::output_again(const View& view) const {
  const at::NoGradGuard no_grad;
  const KeeperScope nobody(nullptr);
  const at::Tensor output = run(/*with_grad=*/false);
  const View found(output);
  if (found.sizes != output_->sizes || found.strides != output_->strides || found.dtype != output_->dtype)
    throw_differs(operator_name());
  if (view.sizes == found.sizes && view.strides == found.strides && view.offset == output_->offset) return output;
  return output.as_strided(view.sizes, view.strides, view.offset - output_->offset + found.offset);
}

at::Tensor Recipe::saved_again(size_t index, const View& view) const {
  const at::AutoGradMode with_grad(true);
  CatchingKeeper catching(index);
  {
    const KeeperScope kept(&catching);
    run(/*with_grad=*/true);
  }
  if (!catching.caught.defined()) throw_differs(operator_name());
  const View found(catching.caught);
  if (found.sizes != view.sizes || found.strides != view.strides || found.dtype != view.dtype) throw_differs(operator_name());
  return catching.caught;
}

}  // namespace gannet::activation
