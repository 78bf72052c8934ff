#include "activation/selective.h"

#include <ATen/core/grad_mode.h>
#include <gannet/error.h>

#include <algorithm>

#include "activation/here.h"
#include "base/format.h"
#include "base/text.h"

namespace gannet::activation {

// Initial capacity of the tables: the number of storages expected in a forward.
constexpr size_t kExpected = 256;

// One saved tensor, which is either kept or recomputed.
struct SelectiveRecomputation::SavedTensor {
  at::Tensor kept;       // for a tensor that is not plain memory
  c10::Storage storage;  // for plain memory: backward creates the tensor from its storage, so that the forward need not
  c10::DispatchKeySet keys;
  Version version;
  std::shared_ptr<const Recipe> recipe;  // null: the tensor is kept
  std::optional<size_t> inside;          // index among the tensors that the operator saved; null: not one
  std::optional<View> view;

  void keep(const at::Tensor& tensor, bool is_memory) {
    if (is_memory && is_plain(tensor)) {
      storage = tensor.storage();
      keys = tensor.key_set();
      view.emplace(tensor);
    } else {
      kept = without_graph(tensor);
    }
  }
  // Returns null if nothing is kept, or if the tensor has no storage.
  const c10::StorageImpl* storage_kept() const {
    if (kept.defined()) return kept.has_storage() ? storage_impl(kept) : nullptr;
    return storage ? storage.unsafeGetStorageImpl() : nullptr;
  }

  at::Tensor again() const {
    if (version.has_passed()) throw_changed(view ? *view : View(kept), version);
    if (recipe) return inside ? recipe->saved_again(*inside, *view) : recipe->output_again(*view);
    if (kept.defined()) return kept;
    at::Tensor tensor = tensor_over(storage, keys, *view);
    tensor.unsafeGetTensorImpl()->set_version_counter(version.counter);
    return tensor;
  }
};

class SelectiveRecomputation::Hooks : public torch::autograd::SavedVariableHooks {
 public:
  explicit Hooks(SelectiveRecomputation& selective) : selective_(selective), saved_(std::make_shared<SavedTensor>()) {}
  void call_pack_hook(const at::Tensor& tensor) override { selective_.pack(saved_, tensor); }
  at::Tensor call_unpack_hook() override { return saved_->again(); }

 private:
  SelectiveRecomputation& selective_;  // used only in the pack hook, which is called immediately
  std::shared_ptr<SavedTensor> saved_;
};

SelectiveRecomputation::SelectiveRecomputation(const CheapOperators& chosen)
    : chosen_(chosen),
      recipes_(kExpected),
      kept_(kExpected),
      keeping_((install_saved_tensor_hooks(), this)),
      outer_(zero::set_call_watcher(this)) {}

SelectiveRecomputation::~SelectiveRecomputation() {
  zero::set_call_watcher(outer_);
  for (const DropCandidate& candidate : undecided_) drop(candidate);
}

bool SelectiveRecomputation::drop(const DropCandidate& candidate) {
  const auto saved = candidate.saved.lock();
  if (!saved || !candidate.recipe->can_hold(*this)) return false;
  candidate.recipe->hold(*this);
  saved->recipe = candidate.recipe;
  saved->inside = candidate.inside;
  if (!saved->view) saved->view.emplace(saved->kept);
  saved->kept.reset();
  saved->storage = {};
  return true;
}

std::unique_ptr<torch::autograd::SavedVariableHooks> SelectiveRecomputation::hooks() { return std::make_unique<Hooks>(*this); }

bool SelectiveRecomputation::is_kept(const c10::StorageImpl* storage) const {
  const auto found = kept_.find(storage);
  return found != kept_.end() && !found->second.expired();
}

void SelectiveRecomputation::keep(const SavedTensor& saved) {
  const c10::StorageImpl* const storage = saved.storage_kept();
  kept_.emplace(storage, saved.kept.defined() ? weak_storage(saved.kept) : saved.storage.getWeakStorageImpl());
}

std::shared_ptr<Recipe> SelectiveRecomputation::recipe_of(const at::Tensor& tensor) const {
  const auto found = recipes_.find(storage_impl(tensor));
  if (found == recipes_.end()) return nullptr;
  const auto& [storage, recipe] = found->second;
  const bool is_same = !storage.expired() && recipe->output_version() == Version::of(tensor) &&
                       recipe->output_dtype() == tensor.scalar_type() && !tensor.is_conj() && !tensor.is_neg();
  return is_same ? recipe : nullptr;
}

void SelectiveRecomputation::pack(const std::shared_ptr<SavedTensor>& saved, const at::Tensor& tensor) {
  SavedBytes::note(tensor);
  const size_t number = running_ ? running_->saved++ : 0;
  saved->version = Version::of(tensor);
  const bool is_memory = tensor.has_storage() && tensor.layout() == at::kStrided,
             is_inside = is_memory && running_ && !running_->recipe.is_input(storage_impl(tensor));
  auto recipe = is_memory && !is_inside ? recipe_of(tensor) : nullptr;
  if (recipe && recipe->can_hold(*this)) {
    recipe->hold(*this);
    saved->view.emplace(tensor);
    saved->recipe = std::move(recipe);
    return;
  }
  saved->keep(tensor, is_memory);
  if (!is_memory) return;
  if (is_inside) {
    running_->inside.emplace_back(number, saved);  // dropped or kept when the operator ends
    return;
  }
  keep(*saved);
  if (recipe) undecided_.push_back({saved, std::move(recipe), {}});
}

void SelectiveRecomputation::on_call(const c10::OperatorHandle& op, const std::vector<c10::IValue>& stack,
                                     c10::function_ref<void()> run) {
  const auto* const chosen = chosen_.find(op);
  if (!chosen || running_ || keeper_here() != this || !at::GradMode::is_enabled()) return run();
  const StorageNotes& notes = *this;
  const auto recipe = std::make_shared<Recipe>(op, stack, chosen->is_random, notes);
  if (!recipe->is_usable()) return run();
  RunningOperator running{*recipe};
  struct RunningOperatorScope {
    RunningOperator*& at;
    ~RunningOperatorScope() { at = nullptr; }
  };
  {
    const RunningOperatorScope within{running_ = &running};
    run();
  }
  const at::Tensor& output = stack.back().toTensor();
  // If the output is a view of an input, as with dropout in evaluation mode, its storage is the
  // input's, not a new one.
  const bool is_new = output.defined() && output.has_storage() && output.layout() == at::kStrided && !output.is_inference() &&
                      !recipe->is_input(storage_impl(output));
  if (is_new) {
    recipe->finish(output);
    recipes_.insert_or_assign(storage_impl(output), StorageRecipe(weak_storage(output), recipe));
  }
  for (const auto& [number, weak] : running.inside) {
    const auto saved = weak.lock();
    if (!saved) continue;
    const bool is_output = is_new && saved->storage_kept() == storage_impl(output);
    // The statistics of a norm are too small to be worth a second run.
    const bool is_large = is_output || saved->storage_kept()->nbytes() * 4 >= recipe->input_bytes();
    const DropCandidate candidate{weak, recipe, is_output ? std::nullopt : std::optional(number)};
    if (is_new && is_large && drop(candidate)) continue;
    keep(*saved);
    if (is_new && is_large) undecided_.push_back(candidate);
  }
}

}  // namespace gannet::activation
