// save_checkpoint: collects the content that the engine saves in a checkpoint, and decides which
// rank writes which part.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <gannet/cursor.h>
#include <gannet/log.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/output-archive.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "base/format.h"
#include "base/text.h"
#include "control/network.h"
#include "control/world.h"
#include "engine/checkpoint/not_finite.h"
#include "engine/checkpoint/rank_states.h"
#include "engine/checkpoint/shared_slices.h"
#include "engine/checkpoint/state_entries.h"
#include "engine/gate.h"
#include "engine/impl.h"
#include "engine/report.h"
#include "engine/ties.h"
#include "engine/used_plugins.h"
#include "tensor/torch_errors.h"

namespace gannet {
namespace {

using checkpoint::Slice;

at::Tensor bytes_of(const std::string& text) {
  at::Tensor bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::memcpy(bytes.data_ptr(), text.data(), text.size());
  return bytes;
}

Slice whole(std::string name, const at::Tensor& tensor) {
  return {std::move(name), tensor.sizes().vec(), 0, tensor.contiguous().view({-1})};
}

List tensors_in_group(const EngineBase::Impl& impl, size_t group) {
  List names;
  for (const TrainedParameter* parameter : impl.store.parameters_of(group)) names.emplace_back(saved_name(impl, parameter->name));
  return names;
}

// Returns how many updates each parameter missed because it joined late or was frozen for a
// while.
Dict missed_updates(const EngineBase::Impl& impl) {
  Dict lags;
  for (const auto& range : impl.store.ranges())
    for (const auto& parameter : range.parameters)
      if (parameter.lag != 0) lags[saved_name(impl, parameter.name)] = parameter.lag;
  return lags;
}

// Returns rank 0's tag. If the ranks passed different tags, all ranks throw the same error, rank 0
// logs a warning, or the difference is ignored, as configured.
std::string agreed_tag(const checkpoint::Ranks& ranks, const std::string& folder, const std::string& tag,
                       const std::string& validation) {
  if (!ranks.gather) return tag;
  const auto tags = ranks.gather(formatted("save_checkpoint into {}", folder), tag);
  for (uint32_t rank = 1; rank < tags.size(); ++rank) {
    if (tags[rank] == tags[0] || lower(validation) == "ignore") continue;
    const std::string sentence =
        formatted("save_checkpoint was given different tags: '{}' on rank 0, '{}' on rank {}", tags[0], tags[rank], rank);
    if (lower(validation) == "fail")
      throw Error(ErrorCode::kMismatch, sentence, "give the same tag on every rank (checkpoint.tag_validation is Fail)");
    if (ranks.rank == 0) log_warning(formatted("{}; rank 0's is used (checkpoint.tag_validation)", sentence));
    break;
  }
  return tags[0];
}

}  // namespace

std::string real_path(const std::string& folder) {
  std::error_code failure;
  // Makes the path absolute first: the canonical path of a relative name that does not exist would
  // be relative, and would change later.
  const auto absolute = std::filesystem::absolute(folder, failure);
  const auto path = failure ? absolute : std::filesystem::weakly_canonical(absolute, failure);
  return failure ? folder : path.string();
}

Dict EngineBase::Impl::document(const SaveOptions& options) const {
  const char* const precision = skip_policy.is_fp16       ? "fp16"
                                : settings().bf16.enabled ? "bf16"
                                                          : "fp32";  // a loss scale belongs to one of these
  Dict scale{{"precision", precision},
             {"dynamic", scaler.is_dynamic()},
             {"scale", scaler.state().scale},
             {"iteration", scaler.state().iteration},
             {"last_overflow_iteration", scaler.state().last_overflow_iteration},
             {"hysteresis_left", scaler.state().hysteresis_left}};
  List group_list;
  const Schedule::Values scheduled = schedule.now(groups);
  for (size_t g = 0; g < groups.size(); ++g) {
    const Group& group = groups[g];
    Dict hyper, of_schedule;
    for (size_t h = 0; h < group.hyper.size(); ++h) {
      hyper[group.hyper_names[h]] = group.hyper[h];
      // A load uses the schedule's value to tell whether the schedule is still the same.
      if (const auto value = scheduled_value(scheduled, g, group.hyper_roles[h])) of_schedule[group.hyper_names[h]] = *value;
    }
    group_list.push_back(Dict{{"name", group.name},
                              {"hyper", std::move(hyper)},
                              {"scheduled", std::move(of_schedule)},
                              {"tensors", tensors_in_group(*this, g)},
                              {"missed_updates", group.lag}});
  }
  Dict config;
  for (const auto& entry : resolved.effective) config[entry.path] = entry.value;
  return Dict{
      {"global_steps", progress.global_steps},
      {"applied_steps", progress.applied_steps},
      {"optimizer_seed", updater.run_seed},
      {"skipped_steps", progress.skipped_steps},
      {"consecutive_skips", progress.consecutive_skips},
      {"micro_steps", progress.micro_steps},
      {"micro_in_step", progress.micro_in_step},
      {"missed_updates", missed_updates(*this)},
      {"global_samples", progress.global_samples},
      {"accumulation_steps", settings().accumulation_steps},
      {"loss_scaler", std::move(scale)},
      {"schedule_position", schedule.position},
      {"schedule_state", List(schedule.state.begin(), schedule.state.end())},
      {"groups", std::move(group_list)},
      {"optimizer", optimizer_name()},
      {"frozen_excluded", options.exclude_frozen_parameters},
      {"plugins", control::list_of(used_plugins(*this))},
      {"config", std::move(config)},
      {"client_state", options.client_state.document},
  };
}

namespace {

// The content of one save while it is being assembled, and the values that its slices depend on.
struct SaveContext {
  const EngineBase::Impl& impl;
  const SaveOptions& options;
  const checkpoint::Neighbours& neighbours;
  const checkpoint::Ranks ranks;
  const std::string mine = rank_name(ranks.mesh, ranks.rank);
  const std::vector<StateEntry> entries = common_entries(impl);
  checkpoint::Content content = {};
};

void add_entries(SaveContext& save) {
  const EngineBase::Impl& impl = save.impl;
  auto& slices = save.content.slices;
  SharedSlices shared(impl.mesh->refined(), save.ranks.rank, save.neighbours);
  for (const StateEntry& entry : save.entries) {
    if (entry.kind == StateEntry::Kind::kFrozen && save.options.exclude_frozen_parameters) continue;
    if (!entry.is_given_here) continue;
    if (entry.kind == StateEntry::Kind::kBuffer)
      slices.push_back(whole(stored_name(entry, save.mine), entry.whole));
    else if (entry.whole.defined())
      shared.add(entry, stored_name(entry, save.mine));
    else if (entry.part.defined() && gives_part(entry, impl.mesh->refined(), save.ranks.rank))
      slices.push_back({stored_name(entry, save.mine), entry.shape, entry.begin, entry.part, entry.stored, false, entry.split});
  }
  shared.give(slices);
}

// Adds the sums of the micro-batches so far, and gradients that are kept for later.
void add_gradients(SaveContext& save) {
  const EngineBase::Impl& impl = save.impl;
  if (impl.reducer && impl.reducer->holds_sums()) {
    const auto trained = trained_entries(save.entries);  // a sum is split like its parameter
    for (const auto& range : impl.store.ranges())
      for (const auto& part : range.parts) {
        StateEntry entry = *trained.at(range.parameters[part.tensor].name);
        entry.is_given_here = true;  // each stage has its own sum for a tied parameter
        if (gives_part(entry, impl.mesh->refined(), save.ranks.rank))
          save.content.slices.push_back(
              {saved_sum_name(impl, entry.name), entry.shape, part.begin, range.grad_of(part), nullptr, false, entry.split});
      }
  }
  for (const auto& range : impl.store.ranges())
    for (const auto& parameter : range.parameters)
      if (parameter.held.defined())
        save.content.slices.push_back(
            whole(formatted("gradient/{}/{}", save.mine, parameter.name), parameter.held.view(parameter.shape)));
}

// Adds the data that the program's own optimizer serialises. If every rank keeps the whole model,
// the keeper has all states.
void add_user_optimizer(SaveContext& save) {
  const EngineBase::Impl& impl = save.impl;
  const bool keeps_part = keeps_model_parts(impl);
  if (!impl.user_optimizer || !(keeps_part ? impl.comm->rank() == 0 : save.ranks.rank == save.neighbours.keeper)) return;
  torch::serialize::OutputArchive archive;
  impl.user_optimizer->get().save(archive);
  std::ostringstream stream;
  archive.save_to(stream);
  save.content.slices.push_back(whole(user_optimizer_name(impl), bytes_of(stream.str())));
  save.content.slices.back().is_for_neighbours = !keeps_part;
}

void add_client_state(SaveContext& save) {
  if (save.ranks.rank != save.neighbours.keeper) return;
  for (const auto& [name, tensor] : save.options.client_state.tensors) {
    Slice slice = whole(formatted("client/{}", name), tensor.detach());
    slice.is_for_neighbours = true;
    save.content.slices.push_back(std::move(slice));
  }
}

Dict rank_document(const EngineBase::Impl& impl) {
  Dict states;
  for (const auto& state : impl.program_states)
    if (Value value = state.save(); !value.is_null()) states[state.name] = std::move(value);
  Dict document{{"states", std::move(states)}};
  if (!impl.splits.empty()) document["splits"] = impl.splits;
  if (impl.mesh->has_pipe_stages()) {  // each stage writes its own members; the common document has the first stage's
    List of_stage;
    for (size_t g = 0; g < impl.groups.size(); ++g) of_stage.emplace_back(tensors_in_group(impl, g));
    document["group_tensors"] = std::move(of_stage);
    document["missed_updates"] = missed_updates(impl);
  }
  return document;
}

}  // namespace

checkpoint::Content EngineBase::Impl::content(const SaveOptions& options, const checkpoint::Neighbours& neighbours) const {
  SaveContext save{*this, options, neighbours, checkpoint_ranks()};
  add_entries(save);
  add_rank_states(*this, save.mine, save.content.slices);
  for (const auto& [name, state] : random_states(*this))
    save.content.slices.push_back(whole(formatted("rng/{}/{}", save.mine, name), state));
  if (reducer) {
    reducer->take_cleared();
    reducer->wait_for_sums();
  }
  add_gradients(save);
  add_user_optimizer(save);
  add_client_state(save);
  save.content.document = document(options);
  save.content.rank_document = rank_document(*this);
  return std::move(save.content);
}

// Returns the ranks of this engine, with the function that gathers strings from them.
checkpoint::Ranks EngineBase::Impl::checkpoint_ranks() const {
  checkpoint::Ranks ranks{world_group->rank(), world_group->size(), nullptr};
  ranks.mesh = mesh->shape();
  if (ranks.size == 1) return ranks;
  if (settings().checkpoint_on_each_machine) ranks.machine = control::machine_identity();
  HostGroup* group = saving.group ? saving.group.get() : world_group;
  ranks.gather = [group](const std::string&, const std::string& text) { return group->gather_texts(text); };
  return ranks;
}

// A background write communicates while the engine's thread does, so it has its own group.
CheckpointWriter& EngineBase::Impl::writer() {
  if (settings().checkpoint_async && !saving.group && world_group->size() > 1)
    saving.group = std::make_unique<HostGroup>(process_group->world()->host_comm(), world_group->ranks(),
                                               formatted("{}/saves/{}", world_group->name(), number_in_group));
  if (!saving.writer) saving.writer = std::make_unique<CheckpointWriter>(checkpoint_ranks());
  return *saving.writer;
}

SaveReceipt EngineBase::save_checkpoint(const std::string& folder, const SaveOptions& options) try {
  Impl& impl = *impl_;
  const Entered entered(impl, Call::kSaveCheckpoint);
  const auto began = std::chrono::steady_clock::now();
  if (folder.empty())
    throw Error(ErrorCode::kArgument, "save_checkpoint was given no folder", "name one, for example \"checkpoints\"");
  wait_for_checkpoint();
  CheckpointWriter& writer = impl.writer();
  const bool is_async = impl.settings().checkpoint_async;
  auto call = impl.process_group->world()->enter(*impl.world_group, "save_checkpoint", impl.progress.global_steps, folder);
  Timers::Scope timed(impl.timers, TimedPhase::kCheckpoint);
  at::NoGradGuard no_grad;
  const std::string tag = agreed_tag(writer.ranks(), folder,
                                     options.tag.empty() ? formatted("global_step{}", impl.progress.global_steps) : options.tag,
                                     impl.settings().tag_validation);
  if (impl.reducer) {
    impl.audit();
    if (impl.settings().fingerprint_every > 0) impl.compare_fingerprints("at a save");
  }
  impl.updater.average().follow_masters();
  checkpoint::Saver& saver = writer.saver(folder);
  checkpoint::Content content = impl.content(options, saver.neighbours());
  content.tag = tag;
  content.add_files = options.add_files;
  const checkpoint::Saver::Options how{options.save_latest, impl.settings().checkpoint_keep,
                                       impl.saving.loaded_folders.contains(real_path(folder))};
  SaveReceipt receipt;
  receipt.path = formatted("{}/{}", folder, content.tag);
  if (is_async) {
    writer.snapshot(content.slices);
    writer.start([&saver, &impl, how, step = impl.progress.global_steps, content = std::move(content)] {
      std::optional<control::Watch::Call> watched;  // the watch names late ranks here as well
      if (impl.saving.group)
        watched.emplace(impl.process_group->world()->watch(), *impl.saving.group, "save_checkpoint in the background", step,
                        content.tag, control::Watch::Call::kAtOnce);
      const std::string warning = not_finite_text(saver.save(content, how).not_finite);
      if (!warning.empty() && impl.is_first()) log_warning(formatted("checkpoint {}: {}", content.tag, warning));
    });
  } else {
    const checkpoint::SaveResult saved = saver.save(content, how);
    receipt.bytes = saved.bytes;
    receipt.warning = not_finite_text(saved.not_finite);
    if (!receipt.warning.empty() && impl.is_first()) log_warning(formatted("checkpoint {}: {}", receipt.path, receipt.warning));
  }
  receipt.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  if (impl.reporter) impl.reporter->event("checkpoint", impl.progress.global_steps, sentence_of(impl.settings(), receipt));
  return receipt;
} catch (...) {
  rethrow_as_ours("save_checkpoint");
}

void EngineBase::wait_for_checkpoint() {
  if (impl_->saving.writer) impl_->saving.writer->wait();
}

void EngineBase::Impl::add_state(ProgramState added) {
  for (const auto& state : program_states)
    if (state.name == added.name)
      throw Error(ErrorCode::kArgument, formatted("the engine keeps a state '{}' already", added.name),
                  "give each a name of its own");
  program_states.push_back(std::move(added));
}

void EngineBase::add_state(const std::string& name, std::function<Value()> save, std::function<void(const Value&)> load) {
  const uint32_t rank = impl_->comm->rank();
  impl_->add_state({name, std::move(save), [load = std::move(load), rank](const std::vector<Value>& saved) {
                      load(saved[rank < saved.size() ? rank : 0]);
                    }});
}

// The program owns the loader: once it is released, its position is neither saved nor loaded.
void EngineBase::add_loader(const std::string& name, std::shared_ptr<ResumableLoader> loader) {
  const std::weak_ptr<ResumableLoader> known = loader;
  const auto load = [known, rank = impl_->comm->rank(), world = impl_->comm->size()](const std::vector<Value>& saved) {
    const auto loader = known.lock();
    if (!loader) return;
    std::vector<DataCursor> cursors;
    for (const auto& value : saved) cursors.push_back(DataCursor::from_dict(value.as_dict()));
    loader->seek(DataCursor::for_rank(cursors, rank, world));
  };
  const auto save = [known] {
    const auto loader = known.lock();
    return loader ? Value(loader->cursor().to_dict()) : Value();
  };
  impl_->add_state({name, save, load});
}

}  // namespace gannet
