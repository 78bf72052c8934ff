// One load from one checkpoint: is it of this model, read, and back into the engine. Nothing is written before everything that
// the manifest can tell was compared.
#include "engine/loading.h"

#include <ATen/ops/empty.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/input-archive.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <sstream>
#include <tuple>

#include "base/format.h"
#include "base/text.h"
#include "engine/saved_names.h"
#include "engine/state_entries.h"
#include "state/saved_numbers.h"

namespace gannet {
namespace {

using checkpoint::Opened;
using checkpoint::Target;
using checkpoint::TensorInfo;

class Loading {
 public:
  Loading(EngineBase::Impl& impl, const LoadOptions& options, const Opened& found)
      : impl_(impl), options_(options), found_(found), names_(*impl.module, found) {
    is_weights_ = holds_weights_alone(found);
    module_only_ = options.load_module_only || is_weights_;
    saved_ranks_ = found.world_size();
    same_ranks_ = saved_ranks_ == impl.comm->size();
    source_rank_ = names_.source_rank = same_ranks_ ? impl.comm->rank() : 0;
    receipt_.loaded = true;
    receipt_.path = found.path();
    receipt_.tag = found.tag();
    receipt_.saved_by_ranks = saved_ranks_;
    receipt_.notes = found.notes();
    receipt_.module_only = module_only_;
    if (is_weights_ && !options.load_module_only)
      note(
          "the checkpoint holds weights alone: the optimizer, the schedule, the loss scale and the counters are this engine's "
          "own");
  }

  LoadReceipt run() {
    compare();
    if (!module_only_) {
      compare_accumulation();
      check_numbers(found_, impl_.skip_policy.is_fp16, wants_states());
    }
    at::NoGradGuard no_grad;
    impl_.progress.tear(formatted("a load of {} failed partway", found_.path()));
    read();
    if (options_.custom_load_fn) hand_to_program();
    if (!module_only_) restore();
    if (!is_weights_) receipt_.client_state.document = dict("client_state");
    for (size_t g = 0; g < impl_.groups.size(); ++g)
      if (const double* lr = impl_.groups[g].find("lr")) receipt_.lr.push_back(*lr);
    receipt_.global_steps = impl_.progress.global_steps;
    receipt_.global_samples = impl_.progress.global_samples;
    return std::move(receipt_);
  }

 private:
  bool wants_states() const { return options_.load_optimizer_states && !module_only_; }
  const Value& value(const char* key) const {
    const Value* found = found_.document().find(key);
    if (!found)
      throw Error(ErrorCode::kCorrupt, formatted("{}: its manifest has no '{}'", found_.path(), key),
                  "was it saved by an engine?");
    return *found;
  }
  const Dict& dict(const char* key) const { return value(key).as_dict(); }
  int64_t count(const char* key) const { return value(key).as_int(); }  // that check_numbers looked at
  void note(std::string text) { receipt_.notes.push_back(std::move(text)); }

  // Fills wanted_ with what is to be read, or throws with the first differences.
  void compare() {
    const bool frozen_excluded = !is_weights_ && value("frozen_excluded").as_bool();
    std::vector<std::string> differences;
    std::set<std::string> expected, missing_parameters;
    std::map<std::string, int64_t> converted;
    const auto all = state_entries(impl_);
    for (const StateEntry& kept : all) {
      const bool is_state = kept.kind == StateEntry::Kind::kState;
      const TensorInfo* saved = names_.find(kept);
      const std::string name = saved ? saved->name : stored_name(kept, source_rank_);
      expected.insert(name);
      if (is_state && !wants_states()) continue;
      if (!saved) {
        if (kept.kind == StateEntry::Kind::kFrozen && frozen_excluded) {
          note(formatted("frozen parameter '{}' was not saved: it stays as it is", kept.name));
        } else if (options_.load_module_strict ||
                   (is_state && !missing_parameters.count(kept.name.substr(kept.name.find('/') + 1)))) {
          differences.push_back(formatted("missing in the checkpoint: {}", name));
        } else {
          missing_parameters.insert(kept.name);
          if (!is_state) note(formatted("missing in the checkpoint, left as it is: {}", name));
        }
        continue;
      }
      if (saved->shape != kept.shape) {
        differences.push_back(
            formatted("shape of {}: {} in the checkpoint, {} here", name, shape_text(saved->shape), shape_text(kept.shape)));
        continue;
      }
      const bool are_numbers = c10::isFloatingType(saved->dtype) && c10::isFloatingType(kept.dtype);
      const bool may_convert =
          kept.kind == StateEntry::Kind::kFrozen || kept.kind == StateEntry::Kind::kBuffer || (is_weights_ && are_numbers);
      if (saved->dtype != kept.dtype && !may_convert) {
        differences.push_back(formatted("dtype of {}: {} in the checkpoint, {} here", name, c10::toString(saved->dtype),
                                        c10::toString(kept.dtype)));
        continue;
      }
      if (is_weights_ && saved->dtype != kept.dtype)
        ++converted[formatted("{} to {}", c10::toString(saved->dtype), c10::toString(kept.dtype))];
      wanted_.push_back({kept, saved});
      ++(is_state ? receipt_.states : kept.kind == StateEntry::Kind::kBuffer ? receipt_.buffers : receipt_.parameters);
    }
    const std::string own_buffers = formatted("buffer/{}/", source_rank_);
    for (const TensorInfo& saved : found_.tensors()) {
      const bool counts = saved.name.starts_with("parameter/") || saved.name.starts_with(own_buffers) ||
                          (wants_states() && saved.name.starts_with("state/"));
      if (!counts || expected.count(saved.name)) continue;
      if (names_.is_copy_of_tied(saved))
        note(formatted("{} is tied to another parameter here, and has the same values there",
                       saved.name.substr(saved.name.find('/') + 1)));
      else if (options_.load_module_strict && !options_.custom_load_fn)
        differences.push_back(formatted("unexpected in the checkpoint: {}", saved.name));
      else if (!saved.name.starts_with("state/"))
        note(formatted("unexpected in the checkpoint, not used: {}", saved.name));
    }
    for (const auto& [dtypes, tensors] : converted)
      note(formatted("{}{} converted from {}", tensors, tensors == 1 ? " tensor" : " tensors", dtypes));
    if (wants_states() && (found_.find("optimizer/user") != nullptr) != (impl_.user_optimizer != nullptr))
      differences.push_back(impl_.user_optimizer
                                ? "the program gave its own optimizer, and the checkpoint has none of that kind"
                                : "the checkpoint was saved with the program's own optimizer, and this engine has none");
    if (differences.empty() || options_.custom_load_fn) return;
    // Where the model differs, its optimizer's states do too, which is no news.
    auto is_of_states = [](const std::string& line) {
      return line.find("state/") != line.npos || line.find("optimizer") != line.npos;
    };
    const bool only_states = std::all_of(differences.begin(), differences.end(), is_of_states);
    if (!only_states) std::erase_if(differences, is_of_states);
    std::string text;
    for (size_t i = 0; i < std::min<size_t>(differences.size(), 5); ++i) text += formatted("\n  {}", differences[i]);
    if (differences.size() > 5) text += formatted("\n  and {} more", differences.size() - 5);
    throw Error(ErrorCode::kMismatch, formatted("checkpoint {} does not fit this engine:{}", found_.path(), text),
                only_states
                    ? "use the config that it was saved with, or load_optimizer_states = false"
                    : "build the model that was saved, or load with load_module_strict = false where only names are missing");
  }

  void read() {
    std::vector<Target> targets;
    std::deque<std::pair<at::Tensor, std::shared_ptr<StoredBytes>>> stored_copies;  // and from here to a tier
    std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // read here, then copied there: another dtype, or not contiguous
    auto want_part = [&](const std::string& name, int64_t begin, const at::Tensor& into, at::ScalarType saved) {
      at::Tensor direct = into;
      if (!into.is_contiguous() || into.scalar_type() != saved) {
        direct = at::empty(into.sizes(), into.options().dtype(saved));
        copies.emplace_back(direct, into);
      }
      if (direct.numel() > 0) targets.push_back({name, begin, direct.view({-1})});
    };
    auto want = [&](const std::string& name, const at::Tensor& into, at::ScalarType saved) { want_part(name, 0, into, saved); };
    auto bytes = [&](const std::string& name) {
      const TensorInfo* saved = found_.find(name);
      at::Tensor tensor;
      if (saved) {
        tensor = at::empty(saved->shape, saved->dtype);
        if (tensor.numel() > 0) targets.push_back({name, 0, tensor.view({-1})});
      }
      return tensor;
    };

    for (const auto& [kept, saved] : wanted_) {
      if (options_.custom_load_fn && kept.kind != StateEntry::Kind::kState) continue;
      if (kept.whole.defined())
        want(saved->name, kept.whole, saved->dtype);
      else if (kept.stored && saved->dtype == kept.dtype)
        targets.push_back({saved->name, kept.begin, kept.part, kept.stored});
      else if (kept.stored)
        want_part(saved->name, kept.begin,
                  stored_copies.emplace_back(at::empty({kept.part.numel()}, kept.dtype), kept.stored).first, saved->dtype);
      else if (kept.part.defined())
        want_part(saved->name, kept.begin, kept.part, saved->dtype);
    }
    if (options_.custom_load_fn) {
      for (const TensorInfo& saved : found_.tensors()) {
        const std::string own_buffers = formatted("buffer/{}/", source_rank_);
        for (const std::string& prefix : {std::string("parameter/"), own_buffers})
          if (saved.name.starts_with(prefix)) for_program_[saved.name.substr(prefix.size())] = bytes(saved.name);
      }
    }
    if (!module_only_) {
      const uint32_t rank = impl_.comm->rank();
      if (rank < saved_ranks_)
        for (const auto& [name, generator] : generators(impl_)) random_[name] = bytes(formatted("rng/{}/{}", rank, name));
      for (auto& range : impl_.ranges)
        for (auto& parameter : range.parameters)
          if (at::Tensor held = bytes(formatted("gradient/{}/{}", rank, parameter.name)); held.defined())
            gradients_.emplace_back(&range, &parameter, held);
      if (holds_sums_)
        for (auto& range : impl_.ranges)
          for (const auto& part : range.parts)
            targets.push_back({formatted("gradient/sum/{}", range.parameters[part.tensor].name), part.begin,
                               range.grad_of({part.offset, part.own, part.numel})});
      if (impl_.user_optimizer && wants_states()) user_optimizer_ = bytes("optimizer/user");
    }
    for (const TensorInfo& saved : found_.tensors())
      if (saved.name.starts_with("client/")) receipt_.client_state.tensors.emplace_back(saved.name.substr(7), bytes(saved.name));
    found_.read(targets);
    for (auto& [from, into] : copies) into.copy_(from);
    for (auto& [from, into] : stored_copies) into->copy_in(0, from.nbytes(), static_cast<const char*>(from.const_data_ptr()));
  }

  void hand_to_program() {
    options_.custom_load_fn(for_program_, *impl_.module);
    impl_.refresh_masters();
    if (impl_.reducer) impl_.audit();
  }

  // A scale belongs to a precision: 1, which fp32 and bf16 have, would lose fp16's small gradients.
  void restore_loss_scale() {
    if (!impl_.skip_policy.is_fp16 || !impl_.scaler.is_dynamic()) return;
    const std::string precision = precision_of(found_);
    if (precision != "fp16") {
      impl_.scaler.restart();
      note(formatted("the loss scale begins at the config's {}: the checkpoint was saved in {}, which has none",
                     Value(impl_.scaler.scale()).to_json(), precision.empty() ? "another precision" : precision));
      return;
    }
    const Dict& saved = dict("loss_scaler");
    impl_.scaler.set_state({saved.find("scale")->as_number(), saved.find("iteration")->as_int(),
                            saved.find("last_overflow_iteration")->as_int(), saved.find("hysteresis_left")->as_int()});
    if (const Value* dynamic = saved.find("dynamic"); dynamic && !dynamic->as_bool())
      note(formatted("the loss scale was fixed at {} in the checkpoint: it begins there, and moves",
                     Value(impl_.scaler.scale()).to_json()));
  }

  void restore() {
    impl_.progress.global_steps = count("global_steps");
    impl_.progress.skipped_steps = count("skipped_steps");
    impl_.progress.consecutive_skips = count("consecutive_skips");
    impl_.progress.global_samples = count("global_samples");
    impl_.restart_step();
    impl_.progress.caught_errors = 0;
    restore_accumulation();
    restore_loss_scale();
    bool rates_are_restored = false;
    if (wants_states()) {
      impl_.progress.applied_steps = value("applied_steps").as_int();
      const Value* const lags = found_.document().find("missed_updates");  // older checkpoints have none
      for (auto& range : impl_.ranges)
        for (auto& parameter : range.parameters) {
          const Value* const lag = lags ? lags->as_dict().find(parameter.name) : nullptr;
          parameter.lag = lag ? lag->as_int() : 0;
        }
      rates_are_restored = restore_hyperparameters();
      if (user_optimizer_.defined()) {
        std::istringstream stream(
            std::string(static_cast<const char*>(user_optimizer_.const_data_ptr()), user_optimizer_.nbytes()));
        torch::serialize::InputArchive archive;
        archive.load_from(stream);
        impl_.user_optimizer->load(archive);
        for (size_t g = 0; g < impl_.groups.size(); ++g)
          impl_.user_lr_seen[g] = impl_.groups[g].hyper[0] = impl_.user_optimizer->param_groups()[g].options().get_lr();
      }
    } else {
      impl_.progress.applied_steps = 0;  // the optimizer starts over
    }
    if (options_.load_lr_scheduler_states) impl_.schedule.position = value("schedule_position").as_int();
    if (!options_.load_lr_scheduler_states || !rates_are_restored) impl_.schedule.apply();
    restore_random_numbers();
    restore_program_states();
  }

  // Micro-batches between two boundaries: their gradients belong to the ranks that computed them, or are sums over those.
  void compare_accumulation() {
    const auto is_there = [&](const char* prefix) {
      return std::any_of(found_.tensors().begin(), found_.tensors().end(),
                         [&](const auto& tensor) { return tensor.name.starts_with(prefix); });
    };
    if (!is_there("gradient/")) return;
    const int64_t accumulation = impl_.settings().accumulation_steps, saved = value("accumulation_steps").as_int();
    holds_sums_ = is_there("gradient/sum/");
    if (!same_ranks_ || accumulation != saved)
      throw Error(ErrorCode::kMismatch,
                  formatted("checkpoint {} was saved between two steps, by {} ranks with {} accumulation steps: its gradients "
                            "cannot be shared out among {} ranks with {}",
                            found_.path(), saved_ranks_, saved, impl_.comm->size(), accumulation),
                  "resume with the same numbers, or save after a step");
    if (holds_sums_ != impl_.shards_gradients())
      throw Error(ErrorCode::kMismatch,
                  formatted("checkpoint {} was saved between two steps, with gradients {} the ranks, as ZeRO stage {} has them",
                            found_.path(), holds_sums_ ? "summed over" : "of each of", holds_sums_ ? "2" : "0 or 1"),
                  "resume at that stage, or save after a step");
  }

  void restore_accumulation() {
    const int64_t accumulation = impl_.settings().accumulation_steps, saved = value("accumulation_steps").as_int();
    impl_.progress.micro_steps =
        accumulation == saved ? value("micro_steps").as_int() : impl_.progress.global_steps * accumulation;
    const Value* const in_step = found_.document().find("micro_in_step");  // older checkpoints have none
    impl_.progress.micro_in_step = accumulation != saved ? 0
                                   : in_step             ? in_step->as_int()
                                                         : impl_.progress.micro_steps % accumulation;
    if (holds_sums_) impl_.reducer->adopt_sums();
    for (auto& [range, parameter, gradient] : gradients_) {
      parameter->held = range->flat_grad(*parameter);
      parameter->held.copy_(gradient.view(parameter->shape));
    }
  }

  // False where the groups are others: theirs are the config's, and the schedule's.
  bool restore_hyperparameters() {
    const List& saved = value("groups").as_list();
    if (saved.size() != impl_.groups.size()) {
      note(formatted("the checkpoint has {} parameter groups, this engine {}: hyperparameters are the config's", saved.size(),
                     impl_.groups.size()));
      return false;
    }
    for (size_t g = 0; g < saved.size(); ++g) {
      for (const auto& [name, number] : saved[g].at("hyper").as_dict().entries()) {
        double* current = impl_.groups[g].find(name);
        if (!current) continue;
        const bool scheduled = (name == "lr" || name.starts_with("betas")) && impl_.schedule.exists();
        if (*current != number.as_number() && !scheduled)
          note(formatted("{} of {} is the checkpoint's {}, not the config's {} (optimizer->group({}).set changes it)", name,
                         impl_.groups[g].name, number.to_json(), Value(*current).to_json(), g));
        *current = number.as_number();
      }
    }
    return true;
  }

  void restore_random_numbers() {
    for (auto& [name, generator] : generators(impl_)) {
      const auto state = random_.find(name);
      if (state == random_.end() || !state->second.defined()) {
        note(formatted("no random numbers of rank {} ({}) were saved: its generator keeps its current state", impl_.comm->rank(),
                       name));
        continue;
      }
      at::Generator own = generator;
      const std::lock_guard lock(own.mutex());
      own.set_state(state->second);
    }
    if (!same_ranks_ && receipt_.buffers > 0)
      note(formatted("buffers are those of rank 0: {} ranks saved their own, and {} resume", saved_ranks_, impl_.comm->size()));
  }

  void restore_program_states() {
    auto states_of = [&](uint32_t rank) -> const Dict& {
      const Value* states = found_.rank_document(rank).find("states");
      if (!states) throw Error(ErrorCode::kCorrupt, formatted("{}: rank {}'s document has no 'states'", found_.path(), rank));
      return states->as_dict();
    };
    for (auto& state : impl_.program_states) {
      std::vector<Value> saved;
      for (uint32_t rank = 0; rank < saved_ranks_; ++rank)
        if (const Value* found = states_of(rank).find(state.name)) saved.push_back(*found);
      if (saved.size() == saved_ranks_)
        state.load(saved);
      else
        note(formatted("the checkpoint has no state '{}': it stays as it is", state.name));
    }
    for (const auto& [name, unused] : states_of(0).entries())
      if (std::none_of(impl_.program_states.begin(), impl_.program_states.end(),
                       [&](const auto& state) { return state.name == name; }))
        note(formatted("state '{}' of the checkpoint is not used: nothing of that name was added to the engine", name));
  }

  EngineBase::Impl& impl_;
  const LoadOptions& options_;
  const Opened& found_;
  SavedNames names_;
  bool is_weights_ = false;   // an import of weights: no engine saved it
  bool module_only_ = false;  // that, or the program asked for no more
  uint32_t saved_ranks_ = 1, source_rank_ = 0;
  bool same_ranks_ = true;
  LoadReceipt receipt_;
  std::vector<std::pair<StateEntry, const TensorInfo*>> wanted_;
  std::map<std::string, at::Tensor> for_program_, random_;
  std::vector<std::tuple<Range*, TrainedParameter*, at::Tensor>> gradients_;
  bool holds_sums_ = false;  // of gradients over ranks
  at::Tensor user_optimizer_;
};

}  // namespace

LoadReceipt load_from(EngineBase::Impl& impl, const LoadOptions& options, const Opened& found) {
  return Loading(impl, options, found).run();
}

}  // namespace gannet
