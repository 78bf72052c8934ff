// Gathers the full weights of a running engine, in memory or into one file for other programs.
#include <ATen/core/grad_mode.h>
#include <gannet/log.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/format.h"
#include "control/world.h"
#include "engine/agreement.h"
#include "engine/checkpoint/not_finite.h"
#include "engine/checkpoint/rank_states.h"
#include "engine/checkpoint/stage_tensors.h"
#include "engine/checkpoint/state_entries.h"
#include "engine/gate.h"
#include "engine/impl.h"
#include "files/pt_writer.h"
#include "files/state_dict.h"
#include "tensor/finite.h"
#include "tensor/torch_errors.h"

namespace gannet {
namespace {

// Assembles a full tensor from the boxes of the ranks along the tensor or expert axis, which send
// their boxes one after another through host memory. All of these ranks call it; those that do not
// keep the tensor get an undefined one.
at::Tensor assembled(HostGroup& ranks, const at::Tensor& local, const DeclaredSplit& split, bool keeps) {
  at::Tensor whole = keeps ? at::empty(split.shape, local.scalar_type()) : at::Tensor();
  const std::vector<std::string> splits = ranks.gather_texts(to_text(split));
  for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
    const DeclaredSplit its = split_from_text(splits[rank]);
    const at::Tensor boxes = rank == ranks.rank() ? local.to(at::kCPU).contiguous()
                                                  : at::empty(local_shape(its.shape, its.split), local.scalar_type());
    ranks.broadcast(boxes.data_ptr(), boxes.nbytes(), rank);
    if (keeps) copy_to_whole(its, boxes, whole);
  }
  return whole;
}

// Replaces this rank's parts of the tensors that are split along the axis of `ranks` with the full
// tensors.
void assemble(const EngineBase::Impl& impl, HostGroup& ranks, NamedTensors& tensors, bool keeps) {
  std::map<std::string, std::shared_ptr<const DeclaredSplit>> splits;
  for (const auto& entry : impl.module->named_parameters())
    if (auto split = split_of(entry.value())) splits.emplace(entry.key(), std::move(split));
  for (auto& [name, tensor] : tensors)
    if (const auto split = splits.find(name);
        split != splits.end() && split->second->is_along_expert == (&ranks == impl.expert_group))
      tensor = assembled(ranks, tensor, *split->second, keeps);
}

// Adds frozen parameters and buffers.
void add_untrained(const EngineBase::Impl& impl, NamedTensors& tensors, bool exclude_frozen, bool keeps) {
  if (!exclude_frozen)
    for (const auto& range : impl.store.frozen())
      for (const auto& parameter : range.parameters)
        if (!parameter.is_moved) tensors.emplace_back(parameter.name, impl.store.whole_value(parameter, keeps));
  const auto parameters = impl.module->named_parameters();
  const auto is_empty_and_trained = [&](const StateEntry& kept) {  // ranges hold no empty parameters
    const at::Tensor* const parameter = parameters.find(kept.name);
    return parameter && parameter->numel() == 0 && parameter->requires_grad();
  };
  for (const StateEntry& kept : state_entries(impl))
    if (kept.kind == StateEntry::Kind::kBuffer ||
        (kept.kind == StateEntry::Kind::kFrozen && kept.whole.defined() && (!exclude_frozen || is_empty_and_trained(kept))))
      tensors.emplace_back(kept.name, kept.whole);
}

// Adds a tied parameter under its other names as well: programs that use torch.load expect every
// name, and the file stores the values once.
void add_other_names(const torch::nn::Module& module, NamedTensors& tensors) {
  std::map<std::string, at::Tensor> known(tensors.begin(), tensors.end());
  std::map<const void*, at::Tensor> values;
  const auto parameters = module.named_parameters();
  for (const auto& entry : parameters)
    if (const auto found = known.find(entry.key()); found != known.end())
      values.emplace(entry.value().unsafeGetTensorImpl(), found->second);
  for (const auto& entry : parameters)
    if (const auto found = values.find(entry.value().unsafeGetTensorImpl()); found != values.end() && !known.count(entry.key()))
      tensors.emplace_back(entry.key(), found->second);
}

void save_model(EngineBase& engine, const EngineBase::Impl& impl, const std::string& folder, const std::string& filename,
                bool exclude_frozen, bool masters) {
  const char* const name = masters ? "save_fp32_model" : "save_16bit_model";
  if (!files::is_pt_name(filename) && !filename.ends_with(".safetensors"))
    throw Error(ErrorCode::kArgument, formatted("the model's file '{}' does not say what it is by its name", filename),
                "name it *.safetensors, or *.bin, *.pt or *.pth for torch.load");
  auto call = impl.process_group->world()->enter(*impl.world_group, name, impl.progress.global_steps, folder);
  at::NoGradGuard no_grad;
  // The groups along the tensor and expert axes that include the stage's first rank, and assemble
  // split tensors for it.
  const uint32_t first_of_stage = first_rank_of_stage(*impl.mesh);
  const bool is_first_of_stage = impl.mesh->world().rank() == first_of_stage;
  std::vector<HostGroup*> beside;
  for (HostGroup* ranks : {impl.tensor_group, impl.expert_group})
    if (ranks && !impl.splits.empty() &&
        std::count(ranks->ranks().begin(), ranks->ranks().end(), impl.world_group->ranks()[first_of_stage]) > 0)
      beside.push_back(ranks);
  const bool keeps = is_first_of_stage || !beside.empty();
  NamedTensors tensors;
  if (masters)
    tensors = engine.fp32_parameters();  // gathers every rank's part if parameters are sharded
  else
    for (const auto& range : impl.store.ranges())
      for (size_t p = 0; p < range.parameters.size(); ++p) {
        const at::Tensor weights = weights_to_use(impl, range, p);  // defined after a local step
        tensors.emplace_back(range.parameters[p].name, weights.defined()
                                                           ? Range::shaped(weights.to(range.dtype).flatten(), range.parameters[p])
                                                           : impl.store.whole_value(range.parameters[p], keeps));
      }
  add_untrained(impl, tensors, exclude_frozen, keeps);
  for (HostGroup* ranks : beside) assemble(impl, *ranks, tensors, is_first_of_stage);
  if (is_first_of_stage) gather_stages(*impl.mesh, tensors);
  std::string problem;
  if (impl.is_first()) {
    std::map<std::string, uint64_t> wrong;
    for (const auto& [name, tensor] : tensors)
      if (const uint64_t count = count_not_finite(tensor)) wrong[formatted("parameter/{}", name)] = count;
    if (const std::string warning = not_finite_text(wrong); !warning.empty())
      log_warning(formatted("model {}/{}: {}", folder, filename, warning));
    try {
      std::error_code failure;
      std::filesystem::create_directories(folder, failure);
      if (failure) throw Error(ErrorCode::kIo, formatted("cannot make the folder '{}': {}", folder, failure.message()));
      if (files::is_pt_name(filename)) add_other_names(*impl.module, tensors);
      if (files::is_pt_name(filename))
        files::save_pt(formatted("{}/{}", folder, filename), tensors);
      else
        save_safetensors(formatted("{}/{}", folder, filename), tensors, {{"format", "pt"}});
    } catch (const Error& error) {
      problem = error.what();
      if (impl.world_group->size() == 1) throw;
    }
  }
  if (impl.world_group->size() > 1) {
    const auto problems = impl.world_group->gather_texts(problem);
    if (!problems[0].empty()) throw Error(ErrorCode::kIo, formatted("rank 0 could not save the model: {}", problems[0]));
  }
}

}  // namespace

std::vector<std::pair<std::string, at::Tensor>> EngineBase::fp32_state(bool exclude_frozen_parameters) try {
  const Entered entered(*impl_, Call::kFp32State);
  auto call = impl_->process_group->world()->enter(*impl_->world_group, "fp32_state", impl_->progress.global_steps);
  at::NoGradGuard no_grad;
  NamedTensors tensors = fp32_parameters();
  add_untrained(*impl_, tensors, exclude_frozen_parameters, /*keeps=*/true);
  return tensors;
} catch (...) {
  rethrow_as_ours("fp32_state");
}

bool EngineBase::save_16bit_model(const std::string& folder, const std::string& filename, bool exclude_frozen_parameters) try {
  const Calls::Entered entered(impl_->calls, name_of(Call::kSave16bitModel));
  if (impl_->settings().zero.stage == 3 && !impl_->settings().zero.gather_16bit_on_save) {
    if (impl_->is_first())
      log_warning(
          "save_16bit_model wrote nothing: at ZeRO stage 3 the weights are gathered for it only with "
          "zero_optimization.stage3_gather_16bit_weights_on_model_save: true (save_checkpoint needs no such key)");
    return false;
  }
  gate::require(*impl_, Call::kSave16bitModel);
  save_model(*this, *impl_, folder, filename, exclude_frozen_parameters, /*masters=*/false);
  return true;
} catch (...) {
  rethrow_as_ours("save_16bit_model");
}
void EngineBase::save_fp32_model(const std::string& folder, const std::string& filename, bool exclude_frozen_parameters) try {
  const Entered entered(*impl_, Call::kSaveFp32Model);
  save_model(*this, *impl_, folder, filename, exclude_frozen_parameters, /*masters=*/true);
} catch (...) {
  rethrow_as_ours("save_fp32_model");
}

}  // namespace gannet
