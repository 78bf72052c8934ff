// auto_find_batch_size: tries the forward and backward passes of one micro-batch before training.
// If a rank is out of memory, all ranks reduce the size to nine tenths, as accelerate does, and try
// again. The run is bitwise identical to one that was started with the final size, because the
// effects of a probe are undone, and an engine for a different size starts from a checkpoint of the
// first engine.
//
// A rank that runs out of memory must not leave the others in a collective call. Below ZeRO stage
// 3, forward makes no collective calls. Backward makes none if gradients are reduced only at an
// accumulation boundary (stages 0 and 1) and the probe is not at one. At stage 2 on several ranks
// the probe uses LibTorch's own backward, which keeps gradients in `.grad` for the duration of the
// probe.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Generator.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gannet/checkpoint.h>
#include <gannet/error.h>
#include <gannet/log.h>
#include <gannet/rng_tracker.h>
#include <gannet/trainer_base.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <new>
#include <utility>

#include "exception_text.h"
#include "model_errors.h"

namespace gannet {
namespace {

namespace fs = std::filesystem;

// Restores what a forward pass changes besides its results: generator states, and buffers such as
// running means.
class ForwardRollback {
 public:
  ForwardRollback(torch::nn::Module& module, at::Device device) : tracked_(checkpointing::rng_tracker().get_states()) {
    keep(at::globalContext().defaultGenerator(at::kCPU));
    if (device.is_cuda()) keep(at::globalContext().defaultGenerator(device));
    for (const auto& buffer : module.named_buffers())
      if (buffer.value().defined()) buffers_.emplace_back(buffer.value(), buffer.value().detach().clone());
    for (const auto& parameter : module.named_parameters())
      versions_.emplace_back(parameter.key(), parameter.value(), parameter.value()._version());
  }
  ~ForwardRollback() {
    const at::NoGradGuard no_grad;
    for (auto& [buffer, before] : buffers_) buffer.copy_(before);
    for (auto& [generator, state] : generators_) {
      const std::lock_guard lock(generator.mutex());
      generator.set_state(state);
    }
    checkpointing::rng_tracker().set_states(tracked_);
  }
  ForwardRollback(const ForwardRollback&) = delete;
  /// Throws if forward wrote to a parameter. That cannot be undone, because the parameter's master
  /// copy would take over the written value.
  void check_parameters() const {
    for (const auto& [name, parameter, version] : versions_)
      if (parameter._version() != version)
        throw Error(
            ErrorCode::kUnsupported,
            "auto_find_batch_size: the model's forward writes its parameter '" + name + "', which trying a size would change",
            "give per_device_train_batch_size without auto_find_batch_size");
  }

 private:
  void keep(at::Generator generator) {
    const std::lock_guard lock(generator.mutex());
    generators_.emplace_back(generator, generator.get_state());
  }
  std::vector<std::pair<at::Generator, at::Tensor>> generators_;
  checkpointing::RngTracker::States tracked_;
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;
  std::vector<std::tuple<std::string, at::Tensor, uint32_t>> versions_;
};

// After a failed backward, LibTorch leaves the nodes that did not run, and the memory they hold, in
// this thread's queue until another backward drains it. Nodes run youngest first, so the node of
// `older_` runs last.
class LeftoverNodes {
 public:
  LeftoverNodes() : older_(at::zeros({}).requires_grad_() * 1) {}
  void take_out() {
    if (older_.defined()) std::exchange(older_, at::Tensor()).backward();
  }

 private:
  at::Tensor older_;
};

// Must be called within an exception handler. Returns why memory ran out, or "" for any other
// exception.
std::string reason_without_memory() {
  const auto first_line = [](const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    return text.substr(0, text.find('\n'));
  };
  try {
    throw;
  } catch (const Error& error) {
    return error.code() == ErrorCode::kOutOfMemory ? error.message() : "";
  } catch (const c10::OutOfMemoryError& error) {
    return first_line(error);
  } catch (const c10::Error& error) {
    const std::string line = first_line(error);
    return line.find("DefaultCPUAllocator") != std::string::npos ? line : "";
  } catch (const std::bad_alloc&) {
    return "the host has none left";
  } catch (...) {
    return "";
  }
}

constexpr char kNoMemory = 'm', kFailed = 'f';

}  // namespace

void TrainerBase::run_probe() {
  LoaderOptions options = train_loader_options(engine_->loader_options());
  options.workers = 0;
  open_probe(options);
  engine_->train();
  const bool is_engines = engine_->world_size() == 1 || zero_stage_ < 2;
  micro_batches_left_ = arguments_.gradient_accumulation_steps;
  // The second micro-batch of an update runs with the gradients of the first in memory.
  for (int64_t pass = 0; pass < std::min<int64_t>(2, arguments_.gradient_accumulation_steps); ++pass) {
    const at::Tensor loss = of_model("auto_find_batch_size, forward of the model", [&] { return measure_probe(); });
    if (is_engines)
      engine_->backward(loss, {.scale_wrt_gas = false});
    else
      loss.backward();
  }
}

// Describes which ranks lack memory for the current size, and why; "" if none does. All ranks get
// the same answer.
std::string TrainerBase::probe() {
  std::string mine;
  std::exception_ptr thrown;
  engine_->set_gradient_accumulation_boundary(false);
  {
    const ForwardRollback undo(module(), engine_->device());
    LeftoverNodes leftovers;
    try {
      run_probe();
      undo.check_parameters();
    } catch (const std::exception& error) {
      mine = reason_without_memory();
      mine.insert(mine.begin(), mine.empty() ? kFailed : kNoMemory);
      if (mine[0] == kFailed) {
        mine += error.what();
        thrown = std::current_exception();
      }
    }
    leftovers.take_out();
    close_probe();
    engine_->zero_grad();
  }
  engine_->set_gradient_accumulation_boundary(std::nullopt);
  micro_batches_left_ = 0;

  const auto all = engine_->gather(mine);
  if (thrown) std::rethrow_exception(thrown);
  std::string failures;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    if (all[rank][0] == kFailed)
      throw Error(ErrorCode::kMismatch,
                  "auto_find_batch_size: forward or backward failed on rank " + std::to_string(rank) + ": " + all[rank].substr(1),
                  "this rank's did not; it ends with it");
    failures += (failures.empty() ? "" : "; ") + (all.size() > 1 ? "rank " + std::to_string(rank) + ": " : std::string()) +
                all[rank].substr(1);
  }
  return failures;
}

// Makes an engine for a different size, in the run's initial state, which is loaded from `start`
// unless that is empty.
void TrainerBase::take_batch_size(int64_t samples, const std::string& start) {
  end_engine();
  micro_batch_size_ = samples;
  make_engine_for_batch();
  if (start.empty()) return;
  // Skips the scheduler's state, because the first learning rate depends on the number of updates.
  engine_->load_checkpoint(start, {.load_lr_scheduler_states = false, .lock_folder = false});
  if (const auto schedule = engine_->scheduler_handle(); schedule->type() != "none" && schedule->type() != "ReduceLROnPlateau")
    schedule->step_to(0);
}

// A resumed run keeps the batch size of its checkpoint. Returns false if there is no checkpoint.
bool TrainerBase::follow_checkpoint() {
  if (arguments_.resume_from_checkpoint.empty()) return false;
  auto [folder, load] = place_of_resume();
  if (load.if_present && !fs::exists(folder)) return false;
  load.load_module_only = true;
  const LoadReceipt receipt = engine_->load_checkpoint(folder, load);
  if (!receipt) return false;
  const Value* saved = receipt.client_state.document.find("trainer");
  if (!saved) return true;  // resume() raises the error
  const int64_t rest = arguments_.gradient_accumulation_steps * engine_->world_size();
  const int64_t total = saved->at("total_batch").as_int();
  if (total % rest == 0 && total / rest != micro_batch_size_) take_batch_size(total / rest, "");
  return true;
}

// Called before there is an engine, because at stage 3 the parameters would be lost with the
// engine.
void TrainerBase::check_batch_size_can_be_tried(int64_t stage, int64_t ranks) const {
  if (stage > 2 && ranks > 1)
    throw Error(ErrorCode::kUnsupported,
                "auto_find_batch_size at ZeRO stage 3 on several ranks: forward and backward gather parameters, so that a rank "
                "that is out of memory leaves the others in a collective call",
                "choose stage 2 or below, or the size by `gannet estimate` (docs/estimate.md)");
  if (stage > 2)
    throw Error(ErrorCode::kUnsupported,
                "auto_find_batch_size at ZeRO stage 3: a sharded parameter ends with its engine, and each size needs another one",
                "choose stage 2 or below: on one rank they take the same memory");
  if (has_own_optimizer())
    throw Error(ErrorCode::kUnsupported,
                "auto_find_batch_size with an optimizer object of the program's own, which belongs to one engine",
                "name the optimizer in the config or by the argument optim");
}

void TrainerBase::find_batch_size() {
  if (follow_checkpoint()) return;

  struct StartCheckpoint {  // each rank removes it: with save_on_each_node every machine has a part of it
    ~StartCheckpoint() {
      std::error_code ignored;
      if (!folder.empty()) fs::remove_all(folder, ignored);
    }
    std::string folder;
  } start;
  while (true) {
    const std::string failures = probe();
    if (failures.empty()) break;
    // The same rule as accelerate's; it turns 9 into 8, and 1 into 0.
    const auto smaller = static_cast<int64_t>(static_cast<double>(micro_batch_size_) * 0.9);
    if (smaller == 0)
      throw Error(ErrorCode::kOutOfMemory, "auto_find_batch_size: there is no memory for one sample (" + failures + ")",
                  "recompute activations (gradient_checkpointing), shard more (zero_optimization.stage) or offload; "
                  "`gannet estimate` says what fits");
    if (is_first())
      log_warning("auto_find_batch_size: no memory for micro-batches of " + std::to_string(micro_batch_size_) + " samples (" +
                  failures + "); trying " + std::to_string(smaller));
    if (start.folder.empty()) {
      start.folder = (fs::path(arguments_.output_dir) / ".auto_find_batch_size").string();
      engine_->save_checkpoint(start.folder);
      engine_->wait_for_checkpoint();
    }
    take_batch_size(smaller, start.folder);
  }
  if (is_first())
    log_info("auto_find_batch_size: " + std::to_string(micro_batch_size_) + " samples in a micro-batch of each rank, " +
             std::to_string(samples_in_update()) + " in an update");
}

Error TrainerBase::error_after_probes(const Error& error) const {
  if (!engine_ || error.message().starts_with(kInEvaluation)) return error;  // from the search or an evaluation
  return Error(ErrorCode::kOutOfMemory,
               "there was memory for the micro-batches of " + std::to_string(micro_batch_size_) +
                   " samples that auto_find_batch_size tried, but not in update " + std::to_string(state_.global_step + 1) +
                   ": " + error.message(),
               "give a smaller per_device_train_batch_size; samples that differ in length are tried as the first micro-batches "
               "of the run have them");
}

}  // namespace gannet
