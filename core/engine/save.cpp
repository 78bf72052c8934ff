// save_checkpoint: what of the engine goes into a checkpoint, and which rank gives which part of it.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <gannet/cursor.h>
#include <gannet/log.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/output-archive.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <sstream>

#include "base/format.h"
#include "base/text.h"
#include "control/network.h"
#include "control/world.h"
#include "engine/impl.h"
#include "engine/state_entries.h"
#include "files/pt_writer.h"
#include "files/state_dict.h"
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

// Every rank has all of these; each gives an equal share of their bytes, so that all disks and cores write.
std::vector<Slice> share_of(const std::vector<std::pair<std::string, at::Tensor>>& tensors, uint32_t rank, uint32_t world) {
  int64_t total = 0;
  for (const auto& [name, tensor] : tensors) total += static_cast<int64_t>(tensor.nbytes());
  const int64_t first = total / world * rank, last = rank + 1 == world ? total : total / world * (rank + 1);
  std::vector<Slice> slices;
  int64_t at = 0;
  for (const auto& [name, tensor] : tensors) {
    const auto size = static_cast<int64_t>(tensor.element_size()), bytes = static_cast<int64_t>(tensor.nbytes());
    auto element = [&](int64_t byte) { return std::clamp<int64_t>((byte - at + size - 1) / size, 0, tensor.numel()); };
    const int64_t begin = element(std::max(first, at)), end = element(std::min(last, at + bytes));
    if (tensor.numel() == 0 && rank == 0) slices.push_back(whole(name, tensor));
    if (first < at + bytes && at < last && begin < end)
      slices.push_back({name, tensor.sizes().vec(), begin, tensor.contiguous().view({-1}).narrow(0, begin, end - begin)});
    at += bytes;
  }
  return slices;
}

// One sentence on every rank, where the tags that the ranks gave differ and the config does not take that lightly.
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
  // Absolute first: of a relative name that nothing exists under, the canonical one would be relative, and another one later.
  const auto absolute = std::filesystem::absolute(folder, failure);
  const auto path = failure ? absolute : std::filesystem::weakly_canonical(absolute, failure);
  return failure ? folder : path.string();
}

Dict EngineBase::Impl::document(const SaveOptions& options) const {
  const char* const precision = skip_policy.is_fp16       ? "fp16"
                                : settings().bf16.enabled ? "bf16"
                                                          : "fp32";  // a scale is of one of them
  Dict scale{{"precision", precision},
             {"dynamic", scaler.is_dynamic()},
             {"scale", scaler.state().scale},
             {"iteration", scaler.state().iteration},
             {"last_overflow_iteration", scaler.state().last_overflow_iteration},
             {"hysteresis_left", scaler.state().hysteresis_left}};
  List group_list;
  for (const auto& group : groups) {
    Dict hyper;
    for (size_t h = 0; h < group.hyper.size(); ++h) hyper[group.hyper_names[h]] = group.hyper[h];
    group_list.push_back(Dict{{"name", group.name}, {"hyper", std::move(hyper)}});
  }
  Dict lags;  // of parameters that joined late or were frozen for a while
  for (const auto& range : ranges)
    for (const auto& parameter : range.parameters)
      if (parameter.lag != 0) lags[parameter.name] = parameter.lag;
  Dict config;
  for (const auto& entry : resolved.effective) config[entry.path] = entry.value;
  return Dict{
      {"global_steps", progress.global_steps},
      {"applied_steps", progress.applied_steps},
      {"skipped_steps", progress.skipped_steps},
      {"consecutive_skips", progress.consecutive_skips},
      {"micro_steps", progress.micro_steps},
      {"micro_in_step", progress.micro_in_step},
      {"missed_updates", std::move(lags)},
      {"global_samples", progress.global_samples},
      {"accumulation_steps", settings().accumulation_steps},
      {"loss_scaler", std::move(scale)},
      {"schedule_position", schedule.position},
      {"groups", std::move(group_list)},
      {"frozen_excluded", options.exclude_frozen_parameters},
      {"plugins", control::list_of(registry->opened())},
      {"config", std::move(config)},
      {"client_state", options.client_state.document},
  };
}

checkpoint::Content EngineBase::Impl::content(const SaveOptions& options, const checkpoint::Neighbours& neighbours) const {
  const uint32_t rank = comm->rank();
  checkpoint::Content content;
  const auto add_for_neighbours = [&](Slice slice) {
    slice.is_for_neighbours = true;
    content.slices.push_back(std::move(slice));
  };
  std::vector<std::pair<std::string, at::Tensor>> shared;
  for (const StateEntry& kept : state_entries(*this)) {
    if (kept.kind == StateEntry::Kind::kFrozen && options.exclude_frozen_parameters) continue;
    if (kept.kind == StateEntry::Kind::kBuffer)
      content.slices.push_back(whole(stored_name(kept, rank), kept.whole));
    else if (kept.whole.defined())
      shared.emplace_back(stored_name(kept, rank), kept.whole);
    else if (kept.part.defined() && kept.is_given_here)
      content.slices.push_back({stored_name(kept, rank), kept.shape, kept.begin, kept.part, kept.stored});
  }
  // What all ranks have, the neighbours share: each folder gets it once.
  for (auto& slice : share_of(shared, neighbours.place, neighbours.count)) add_for_neighbours(std::move(slice));

  const std::string mine = formatted("{}/", rank);
  for (auto& [name, generator] : generators(*this)) {
    const std::lock_guard lock(generator.mutex());
    content.slices.push_back(whole(formatted("rng/{}{}", mine, name), generator.get_state()));
  }
  if (reducer) reducer->wait_for_sums();
  if (reducer && reducer->holds_sums())
    for (const auto& range : ranges)
      for (const auto& part : range.parts)
        content.slices.push_back({formatted("gradient/sum/{}", range.parameters[part.tensor].name),
                                  range.parameters[part.tensor].shape, part.begin,
                                  range.grad_of({part.offset, part.own, part.numel})});
  for (const auto& range : ranges)
    for (const auto& parameter : range.parameters)
      if (parameter.held.defined())
        content.slices.push_back(whole(formatted("gradient/{}{}", mine, parameter.name), parameter.held.view(parameter.shape)));
  if (rank == neighbours.keeper && user_optimizer) {
    torch::serialize::OutputArchive archive;
    user_optimizer->save(archive);
    std::ostringstream stream;
    archive.save_to(stream);
    add_for_neighbours(whole("optimizer/user", bytes_of(stream.str())));
  }
  if (rank == neighbours.keeper)
    for (const auto& [name, tensor] : options.client_state.tensors)
      add_for_neighbours(whole(formatted("client/{}", name), tensor.detach()));

  content.document = document(options);
  Dict states;
  for (const auto& state : program_states)
    if (Value value = state.save(); !value.is_null()) states[state.name] = std::move(value);
  content.rank_document = Dict{{"states", std::move(states)}};
  return content;
}

// The ranks of this engine, for texts.
checkpoint::Ranks EngineBase::Impl::checkpoint_ranks() {
  checkpoint::Ranks ranks{comm->rank(), comm->size(), nullptr};
  if (comm->size() == 1) return ranks;
  if (settings().checkpoint_on_each_machine) ranks.machine = control::machine_identity();
  if (settings().checkpoint_async && !saving_group)
    saving_group = std::make_unique<HostGroup>(process_group->world()->host_comm(), host_group->ranks(),
                                               formatted("{}/saves/{}", host_group->name(), number_in_group));
  HostGroup* group = saving_group ? saving_group.get() : host_group;
  ranks.gather = [group](const std::string&, const std::string& text) { return group->gather_texts(text); };
  return ranks;
}

SaveReceipt EngineBase::save_checkpoint(const std::string& folder, const SaveOptions& options) try {
  Impl& impl = *impl_;
  const auto began = std::chrono::steady_clock::now();
  if (folder.empty())
    throw Error(ErrorCode::kArgument, "save_checkpoint was given no folder", "name one, for example \"checkpoints\"");
  impl.require_usable("save_checkpoint");
  if (impl.progress.has_backwarded())
    throw Error(ErrorCode::kOrder, "save_checkpoint was called between backward() and step()", "save after step()");
  wait_for_checkpoint();
  if (!impl.checkpoint_writer) impl.checkpoint_writer = std::make_unique<CheckpointWriter>(impl.checkpoint_ranks());
  CheckpointWriter& writer = *impl.checkpoint_writer;
  const bool is_async = impl.settings().checkpoint_async;

  auto call = impl.process_group->world()->enter(*impl.host_group, "save_checkpoint", impl.progress.global_steps, folder);
  Timers::Scope timed(impl.timers, Timed::kCheckpoint);
  at::NoGradGuard no_grad;
  const std::string tag = agreed_tag(writer.ranks(), folder,
                                     options.tag.empty() ? formatted("global_step{}", impl.progress.global_steps) : options.tag,
                                     impl.settings().tag_validation);
  if (impl.reducer) {
    impl.audit();
    if (impl.settings().fingerprint_every > 0) impl.compare_fingerprints("at a save");
  }
  checkpoint::Saver& saver = writer.saver(folder);
  checkpoint::Content content = impl.content(options, saver.neighbours());
  content.tag = tag;
  const checkpoint::Saver::Options how{options.save_latest, impl.settings().checkpoint_keep,
                                       impl.loaded_folders.contains(real_path(folder))};
  SaveReceipt receipt;
  receipt.path = formatted("{}/{}", folder, content.tag);
  if (is_async) {
    writer.snapshot(content.slices);
    writer.start([&saver, &impl, how, step = impl.progress.global_steps, content = std::move(content)] {
      std::optional<control::Watch::Call> watched;  // who is late is named here, too
      if (impl.saving_group)
        watched.emplace(impl.process_group->world()->watch(), *impl.saving_group, "save_checkpoint in the background", step,
                        content.tag, control::Watch::Call::kAtOnce);
      saver.save(content, how);
    });
  } else {
    receipt.bytes = saver.save(content, how).bytes;
  }
  receipt.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  if (impl.reporter) impl.reporter->event("checkpoint", impl.progress.global_steps, impl.sentence_of(receipt));
  return receipt;
} catch (...) {
  rethrow_as_ours("save_checkpoint");
}

void EngineBase::wait_for_checkpoint() {
  if (impl_->checkpoint_writer) impl_->checkpoint_writer->wait();
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

// The loader stays the program's: one that it let go of has no place to keep.
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

namespace {

// The module's parameter; where it is shared out every rank calls it, and those that do not keep it get an undefined one.
at::Tensor whole_value(const EngineBase::Impl& impl, const TrainedParameter& parameter, bool keeps) {
  if (!parameter.resident) return parameter.tensor.detach();
  impl.residency->hold({*parameter.resident});
  at::Tensor copy = keeps ? parameter.tensor.detach().clone() : at::Tensor();
  impl.residency->release({*parameter.resident});
  return copy;
}

// Frozen parameters and buffers.
void add_untrained(const EngineBase::Impl& impl, NamedTensors& tensors, bool exclude_frozen, bool keeps) {
  if (!exclude_frozen)
    for (const auto& range : impl.frozen)
      for (const auto& parameter : range.parameters)
        if (!parameter.is_moved) tensors.emplace_back(parameter.name, whole_value(impl, parameter, keeps));
  for (const StateEntry& kept : state_entries(impl))
    if (kept.kind == StateEntry::Kind::kBuffer ||
        (kept.kind == StateEntry::Kind::kFrozen && kept.whole.defined() && !exclude_frozen))
      tensors.emplace_back(kept.name, kept.whole);
}

// A tied parameter under its other names too: torch.load's programs look for each, and its files store them once.
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
  impl.require_usable(masters ? "save_fp32_model" : "save_16bit_model");
  if (!files::is_pt_name(filename) && !filename.ends_with(".safetensors"))
    throw Error(ErrorCode::kArgument, formatted("the model's file '{}' does not say what it is by its name", filename),
                "name it *.safetensors, or *.bin, *.pt or *.pth for torch.load");
  auto call = impl.process_group->world()->enter(*impl.host_group, masters ? "save_fp32_model" : "save_16bit_model",
                                                 impl.progress.global_steps, folder);
  at::NoGradGuard no_grad;
  const bool keeps = impl.comm->rank() == 0;
  NamedTensors tensors;
  if (masters)
    tensors = engine.fp32_parameters();  // every rank's part, where they have parts
  else
    for (const auto& range : impl.ranges)
      for (const auto& parameter : range.parameters) tensors.emplace_back(parameter.name, whole_value(impl, parameter, keeps));
  add_untrained(impl, tensors, exclude_frozen, keeps);
  std::string problem;
  if (impl.comm->rank() == 0) {
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
      if (impl.comm->size() == 1) throw;
    }
  }
  if (impl.comm->size() > 1) {
    const auto problems = impl.host_group->gather_texts(problem);
    if (!problems[0].empty()) throw Error(ErrorCode::kIo, formatted("rank 0 could not save the model: {}", problems[0]));
  }
}

}  // namespace

std::vector<std::pair<std::string, at::Tensor>> EngineBase::fp32_state(bool exclude_frozen_parameters) {
  auto call = impl_->process_group->world()->enter(*impl_->host_group, "fp32_state", impl_->progress.global_steps);
  at::NoGradGuard no_grad;
  NamedTensors tensors = fp32_parameters();
  add_untrained(*impl_, tensors, exclude_frozen_parameters, /*keeps=*/true);
  return tensors;
}

bool EngineBase::save_16bit_model(const std::string& folder, const std::string& filename, bool exclude_frozen_parameters) {
  if (impl_->settings().zero.stage == 3 && !impl_->settings().zero.gather_16bit_on_save) {
    if (impl_->comm->rank() == 0)
      log_warning(
          "save_16bit_model wrote nothing: at ZeRO stage 3 the weights are gathered for it only with "
          "zero_optimization.stage3_gather_16bit_weights_on_model_save: true (save_checkpoint needs no such key)");
    return false;
  }
  save_model(*this, *impl_, folder, filename, exclude_frozen_parameters, /*masters=*/false);
  return true;
}
void EngineBase::save_fp32_model(const std::string& folder, const std::string& filename, bool exclude_frozen_parameters) {
  save_model(*this, *impl_, folder, filename, exclude_frozen_parameters, /*masters=*/true);
}

}  // namespace gannet
