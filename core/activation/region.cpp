#include "activation/region.h"

#include <ATen/core/grad_mode.h>
#include <gannet/error.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <utility>

#include "activation/undo.h"
#include "base/format.h"
#include "base/text.h"

namespace gannet::activation {
namespace {

using torch::autograd::SavedVariableHooks;

constexpr int kNoBackward = -1;  // a saved tensor is looked at outside of any

struct AllPlacesFilled {};  // ends a recomputation early

std::vector<at::Device> devices_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Device> devices;
  for (const at::Tensor& tensor : tensors)
    if (tensor.defined() && std::find(devices.begin(), devices.end(), tensor.device()) == devices.end())
      devices.push_back(tensor.device());
  return devices;
}

}  // namespace

class Region::Dropping : public Keeper {
 public:
  explicit Dropping(Region& region) : region_(region) {}
  std::unique_ptr<SavedVariableHooks> hooks() override { return std::make_unique<Hooks>(region_.shared_from_this()); }

 private:
  class Hooks : public SavedVariableHooks {
   public:
    explicit Hooks(std::shared_ptr<Region> region) : region_(std::move(region)) {}
    void call_pack_hook(const at::Tensor& tensor) override {
      place_ = std::make_shared<Place>();
      place_->sizes = tensor.sizes().vec();
      place_->dtype = tensor.scalar_type();
      place_->device = tensor.device();
      region_->places_.push_back(place_);
    }
    at::Tensor call_unpack_hook() override { return region_->read(*place_); }

   private:
    std::shared_ptr<Region> region_;
    std::shared_ptr<Place> place_;
  };
  Region& region_;
};

// Of a recomputation: what its operators save goes to the places.
class Region::Filling : public Keeper {
 public:
  Filling(Region& region, int backward, Place& wanted, const Undo& undo)
      : region_(region), backward_(backward), wanted_(wanted), undo_(undo) {}

  std::unique_ptr<SavedVariableHooks> hooks() override { return std::make_unique<Hooks>(*this); }
  size_t count() const { return count_; }

 private:
  class Hooks : public SavedVariableHooks {
   public:
    explicit Hooks(Filling& filling) : filling_(filling) {}
    void call_pack_hook(const at::Tensor& tensor) override {
      kept_ = tensor.detach();
      filling_.fill(kept_);
    }
    // Where the region's own code runs a backward.
    at::Tensor call_unpack_hook() override { return kept_; }

   private:
    Filling& filling_;
    at::Tensor kept_;
  };

  void fill(const at::Tensor& tensor) {
    const size_t index = count_++;
    if (index < region_.places_.size()) {
      if (const auto place = region_.places_[index].lock()) fill(*place, index, tensor);
    }
    if (count_ >= region_.places_.size() && region_.options_.early_stop) throw AllPlacesFilled();
  }

  void fill(Place& place, size_t index, const at::Tensor& tensor) {
    if (tensor.sizes() != at::IntArrayRef(place.sizes) || tensor.scalar_type() != place.dtype || tensor.device() != place.device)
      throw Error(
          ErrorCode::kMismatch,
          formatted("the recomputation of {} differs from its forward: operator {} saved a tensor of {} {} on {}, where the "
                    "forward had saved one of {} {} on {} (number {})",
                    region_.name(), undo_.current_operator(), c10::toString(tensor.scalar_type()), shape_text(tensor.sizes()),
                    tensor.device().str(), c10::toString(place.dtype), shape_text(place.sizes), place.device->str(), index + 1),
          "let the function depend on its arguments alone, or call it without checkpointing");
    if (backward_ == kNoBackward && &place != &wanted_) return;
    Place::Filled& filled = place.by_backward[backward_];
    if (filled.is_read && &place != &wanted_) return;
    filled = {tensor, tensor.is_inference() ? 0 : static_cast<uint32_t>(tensor._version()), false};
  }

  Region& region_;
  const int backward_;
  Place& wanted_;
  const Undo& undo_;
  size_t count_ = 0;
};

Region::Region(const checkpointing::Options& options, const std::vector<at::Tensor>& inputs,
               const std::vector<at::Generator>& generators, checkpointing::detail::Again again)
    : options_(options), again_(std::move(again)), surroundings_(devices_of(inputs), generators, options.preserve_rng_state) {
  for (const at::Tensor& tensor : inputs) {
    Input& input = inputs_.emplace_back();
    if (!tensor.defined()) continue;
    input.is_defined = true;
    input.requires_grad = tensor.requires_grad();
    input.saved = torch::autograd::SavedVariable(tensor, /*is_output=*/false);
    // One that a region around this one has dropped is computed again, whatever happens to it.
    if (!tensor.is_inference() && !is_keeping()) {
      input.counter = tensor.unsafeGetTensorImpl()->version_counter();
      input.version = input.counter.current_version();
    }
  }
}

std::string Region::name() const {
  return options_.name.empty() ? "a region of activation checkpointing" : formatted("the region '{}'", printable(options_.name));
}

void Region::run(const checkpointing::detail::Again& forward, const std::vector<at::Tensor>& inputs) {
  {
    Dropping dropping(*this);
    const Keeping kept(&dropping);
    forward(inputs);
  }
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i].is_changed())
      throw Error(
          ErrorCode::kUnsupported,
          formatted("{} changes its input tensor {} in place: there is nothing left to compute it again from", name(), i + 1),
          "use the operator that makes a new tensor (relu for relu_), or give the region a clone");
}

std::vector<at::Tensor> Region::inputs_again() {
  std::vector<at::Tensor> tensors;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Input& input = inputs_[i];
    if (input.is_changed())
      throw Error(ErrorCode::kOrder,
                  formatted("input tensor {} of {} was changed in place between its forward and backward", i + 1, name()),
                  "leave it as it is until backward, or give the region a clone");
    tensors.push_back(input.is_defined ? input.saved.unpack().detach().requires_grad_(input.requires_grad) : at::Tensor());
  }
  return tensors;
}

void Region::recompute(int backward, Place& wanted) {
  const std::vector<at::Tensor> inputs = inputs_again();
  const at::AutoGradMode with_grad(true);
  const Restored surroundings(surroundings_);
  const Undo undo;
  Filling filling(*this, backward, wanted, undo);
  {
    const Keeping kept(&filling);
    try {
      again_(inputs);
    } catch (const AllPlacesFilled&) {
    }
  }
  // A forward that reads places itself, by a backward within the region, has more to come.
  if (filling.count() < places_.size())
    throw Error(
        ErrorCode::kMismatch,
        formatted("the recomputation of {} differs from its forward: its operators saved {} tensors for backward, and those of "
                  "the forward {}",
                  name(), filling.count(), places_.size()),
        "let the function depend on its arguments alone, or call it without checkpointing");
  if (backward == kNoBackward) return;
  // What this backward does not read, because it ends elsewhere, is not kept longer than it.
  torch::autograd::Engine::get_default_engine().queue_callback([region = weak_from_this(), backward] {
    const auto self = region.lock();
    if (!self) return;
    const std::lock_guard lock(self->mutex_);
    for (const auto& weak : self->places_)
      if (const auto place = weak.lock()) place->by_backward.erase(backward);
  });
}

at::Tensor Region::read(Place& place) {
  const std::lock_guard lock(mutex_);
  const int backward = torch::autograd::get_current_graph_task_id();
  if (const auto found = place.by_backward.find(backward); found == place.by_backward.end() || found->second.is_read)
    recompute(backward, place);
  Place::Filled& filled = place.by_backward[backward];
  const at::Tensor tensor = std::exchange(filled.tensor, at::Tensor());
  filled.is_read = true;
  // LibTorch compares versions of what it keeps itself alone.
  const bool is_changed = !tensor.is_inference() && static_cast<uint32_t>(tensor._version()) != filled.version;
  if (backward == kNoBackward) place.by_backward.erase(backward);
  if (is_changed)
    throw Error(ErrorCode::kOrder,
                formatted("a tensor of {} that its backward needs was changed in place after it was saved: {} {}", name(),
                          c10::toString(tensor.scalar_type()), shape_text(tensor.sizes())),
                "use the operator that makes a new tensor (relu for relu_)");
  return tensor;
}

}  // namespace gannet::activation

namespace gannet::checkpointing::detail {

bool is_recorded() { return at::GradMode::is_enabled(); }

void run_region(const Options& options, const std::vector<at::Tensor>& tensors, std::vector<at::Generator> generators,
                const Again& forward, Again again) {
  activation::install_saved_tensor_hooks();
  const auto region = std::make_shared<activation::Region>(options, tensors, generators, std::move(again));
  region->run(forward, tensors);
}

}  // namespace gannet::checkpointing::detail
