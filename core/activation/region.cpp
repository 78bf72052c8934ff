#include "activation/region.h"

#include <ATen/core/grad_mode.h>
#include <gannet/error.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <utility>

#include "activation/boundary.h"
#include "activation/here.h"
#include "base/format.h"
#include "base/text.h"
#include "tensor/thread_info.h"

namespace gannet::activation {
namespace {

using torch::autograd::SavedVariableHooks;

constexpr int64_t kNoBackward = -1;  // a saved tensor is read outside of any backward
// The maximum number of backward passes for which a region keeps tensors. There is a limit because
// a failed backward does not report its end. If a forgotten pass is still running, it recomputes
// again.
constexpr size_t kMostBackwards = 4;

const BackwardInfo* two_passes() {
  const auto* const info = dynamic_cast<const BackwardInfo*>(c10::ThreadLocalDebugInfo::get(kBackwardKind));
  return info && info->split > 0 ? info : nullptr;
}

// The number of the graph task; for a backward in two passes, a number below -1 that both passes share.
int64_t key_of_backward() {
  if (const BackwardInfo* const split = two_passes()) return -1 - split->split;
  return torch::autograd::get_current_graph_task_id();
}

struct AllPlacesFilled {};  // an exception that ends a recomputation early

std::string operator_text(const std::string& name) { return name.empty() ? "a function of the program" : "operator " + name; }

}  // namespace

class Region::DroppingKeeper : public Keeper {
 public:
  DroppingKeeper(Region& region, const RegionRecorder& recorder) : region_(region), recorder_(recorder) {}
  std::unique_ptr<SavedVariableHooks> hooks() override {
    return std::make_unique<Hooks>(region_.shared_from_this(), recorder_.current_operator());
  }

 private:
  class Hooks : public SavedVariableHooks {
   public:
    Hooks(std::shared_ptr<Region> region, const std::string& saved_by)
        : region_(std::move(region)), place_(std::make_shared<SavedTensorPlace>()) {
      place_->saved_by = saved_by;
    }
    void call_pack_hook(const at::Tensor& tensor) override {
      SavedBytes::note(tensor);
      place_->sizes = tensor.sizes().vec();
      place_->dtype = tensor.scalar_type();
      place_->device = tensor.device();
      place_->version = Version::of(tensor);
      region_->places_.push_back(place_);
    }
    at::Tensor call_unpack_hook() override { return region_->read(*place_); }

   private:
    std::shared_ptr<Region> region_;
    std::shared_ptr<SavedTensorPlace> place_;
  };
  Region& region_;
  const RegionRecorder& recorder_;
};

// Fills the places with the tensors that the operators of a recomputation save.
class Region::FillingKeeper : public Keeper {
 public:
  FillingKeeper(Region& region, int64_t backward, SavedTensorPlace& wanted, const RecordReplay& replayed)
      : region_(region), backward_(backward), wanted_(wanted), replayed_(replayed) {}

  std::unique_ptr<SavedVariableHooks> hooks() override { return std::make_unique<Hooks>(*this); }
  size_t count() const { return count_; }

 private:
  class Hooks : public SavedVariableHooks {
   public:
    explicit Hooks(FillingKeeper& filling) : filling_(filling) {}
    void call_pack_hook(const at::Tensor& tensor) override {
      kept_ = tensor.detach();
      filling_.fill(kept_);
    }
    // Called if the region's own code runs a backward.
    at::Tensor call_unpack_hook() override { return kept_; }

   private:
    FillingKeeper& filling_;
    at::Tensor kept_;
  };

  void fill(const at::Tensor& tensor) {
    const size_t index = count_++;
    if (index < region_.places_.size()) {
      if (const auto place = region_.places_[index].lock()) fill(*place, index, tensor);
    }
    // If a backward inside the region reads a place, the forward is still running: do not recompute
    // beyond the point that the forward has reached.
    if (count_ >= region_.places_.size() && (region_.options_.early_stop || !region_.has_run_)) throw AllPlacesFilled();
  }

  void fill(SavedTensorPlace& place, size_t index, const at::Tensor& tensor) {
    if (tensor.sizes() != at::IntArrayRef(place.sizes) || tensor.scalar_type() != place.dtype ||
        tensor.device() != place.device || replayed_.current_operator() != place.saved_by)
      throw Error(
          ErrorCode::kMismatch,
          formatted("the recomputation of {} differs from its forward: {} saved a tensor of {} {} on {}, where {} had saved "
                    "one of {} {} on {} (number {})",
                    region_.name(), operator_text(replayed_.current_operator()), c10::toString(tensor.scalar_type()),
                    shape_text(tensor.sizes()), tensor.device().str(), operator_text(place.saved_by), c10::toString(place.dtype),
                    shape_text(place.sizes), place.device->str(), index + 1),
          "let the function depend only on its arguments: train() and eval() as they were, no state of its own");
    if (backward_ == kNoBackward && &place != &wanted_) return;
    SavedTensorPlace::FilledTensor& filled = place.by_backward[backward_];
    if (filled.is_read && &place != &wanted_) return;
    filled = {tensor, false};
  }

  Region& region_;
  const int64_t backward_;
  SavedTensorPlace& wanted_;
  const RecordReplay& replayed_;
  size_t count_ = 0;
};

Region::Region(const checkpointing::Options& options, const std::vector<at::Tensor>& inputs, checkpointing::detail::Again again)
    : options_(options),
      again_(std::move(again)),
      devices_(devices_of(inputs)),
      surroundings_(devices_, options.preserve_rng_state),
      inputs_(inputs) {}

std::string Region::name() const {
  return options_.name.empty() ? "a region of activation checkpointing" : formatted("the region '{}'", printable(options_.name));
}

void Region::run(const std::function<void()>& forward, const std::vector<at::Tensor>& inputs) {
  RegionRecorder recorder(inputs);
  {
    const Boundary boundary(configuration_.get(), devices_, "forward", name());
    DroppingKeeper dropping(*this, recorder);
    const KeeperScope kept(&dropping);
    const RegionScope in_region;
    forward();
  }
  record_ = recorder.finish();
  if (options_.preserve_rng_state) surroundings_.keep_what_was_drawn_from(recorder.drawn_from());
  has_run_ = true;
  inputs_.keep(inputs, configuration_.get(), name());
}

void Region::recompute(int64_t backward, SavedTensorPlace& wanted) {
  waiting_.reset();
  const std::vector<at::Tensor> inputs = inputs_.again(name());
  record_.require_unchanged(name());
  const at::AutoGradMode with_grad(true);
  const ConfigurationScope configuration(configuration_);  // for nested regions, which are created again
  const Boundary boundary(configuration_.get(), devices_, "recomputation", name());
  const SurroundingsScope surroundings(surroundings_);
  const RecordReplay replayed(record_);
  FillingKeeper filling(*this, backward, wanted, replayed);
  {
    const KeeperScope kept(&filling);
    const RegionScope in_region;
    try {
      again_(inputs);
    } catch (const AllPlacesFilled&) {
    }
  }
  // If a backward inside the region triggered this recomputation, the forward is still running and
  // will save more tensors.
  if (has_run_ ? filling.count() != places_.size() : filling.count() < places_.size())
    throw Error(
        ErrorCode::kMismatch,
        formatted("the recomputation of {} differs from its forward: its operators saved {} tensors for backward, and those of "
                  "the forward {}",
                  name(), filling.count(), places_.size()),
        "let the function depend only on its arguments: train() and eval() as they were, no state of its own");
  if (backward == kNoBackward || std::find(backwards_.begin(), backwards_.end(), backward) != backwards_.end()) return;
  backwards_.push_back(backward);
  if (backwards_.size() > kMostBackwards) forget(backwards_.front());
  if (two_passes()) return;
  // Tensors that this backward never reads, because it ends elsewhere, are dropped when it ends.
  torch::autograd::Engine::get_default_engine().queue_callback([region = weak_from_this(), backward] {
    const auto self = region.lock();
    if (!self) return;
    const std::lock_guard lock(self->mutex_);
    self->forget(backward);
  });
}

void Region::forget(int64_t backward) {
  std::erase(backwards_, backward);
  for (const auto& weak : places_)
    if (const auto place = weak.lock()) place->by_backward.erase(backward);
}

at::Tensor Region::read(SavedTensorPlace& place) {
  const std::lock_guard lock(mutex_);
  if (place.version.has_passed())
    throw Error(ErrorCode::kOrder,
                formatted("a tensor that {} saved in {} for backward was changed in place afterwards: {} {}",
                          operator_text(place.saved_by), name(), c10::toString(place.dtype), shape_text(place.sizes)),
                "use the operator that makes a new tensor (relu for relu_), and call backward before the optimizer's step");
  const int64_t backward = key_of_backward();
  if (const auto found = place.by_backward.find(backward); found == place.by_backward.end() || found->second.is_read)
    recompute(backward, place);
  SavedTensorPlace::FilledTensor& filled = place.by_backward[backward];
  if (const BackwardInfo* const split = two_passes(); split && split->is_input_pass) return filled.tensor;
  const at::Tensor tensor = std::exchange(filled.tensor, at::Tensor());
  filled.is_read = true;
  if (backward == kNoBackward) place.by_backward.erase(backward);
  return tensor;
}

}  // namespace gannet::activation

namespace gannet::checkpointing::detail {

bool is_recorded() { return at::GradMode::is_enabled(); }

void run_region(const Options& options, const std::vector<at::Tensor>& tensors, const std::function<void()>& forward,
                Again again) {
  activation::install_saved_tensor_hooks();
  activation::count_region();
  const auto region = std::make_shared<activation::Region>(options, tensors, std::move(again));
  region->run(forward, tensors);
}

}  // namespace gannet::checkpointing::detail
