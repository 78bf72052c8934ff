// The tensors of a load: selects the checkpoint's tensors to read, and their destinations.
#include "engine/checkpoint/loading.h"

#include <ATen/ops/empty.h>
#include <torch/nn/module.h>

#include <algorithm>

#include "base/format.h"
#include "base/text.h"
#include "engine/checkpoint/rank_states.h"
#include "engine/checkpoint/state_entries.h"
#include "engine/ties.h"
#include "state/saved_numbers.h"

namespace gannet {

using checkpoint::Opened;
using checkpoint::Target;
using checkpoint::TensorInfo;

RankLoad::RankLoad(EngineBase::Impl& impl, const LoadOptions& options, const Opened& found, const checkpoint::Ranks& ranks)
    : impl_(impl),
      options_(options),
      found_(found),
      ranks_(ranks),
      is_weights_(holds_weights_alone(found)),
      module_only_(options.load_module_only || is_weights_),
      is_same_mesh_(same_coordinates(found.mesh(), ranks.mesh)),
      groups_(compare_groups()),
      entries_(entries()),
      names_(*impl.module, found, ranks.mesh, ranks.rank),
      comparison_(found, names_,
                  {options, wants_states(), impl.user_optimizer != nullptr, ranks_.mesh, other_optimizer(),
                   impl.torch_optimizer != nullptr}) {
  receipt_.loaded = true;
  receipt_.path = found.path();
  receipt_.tag = found.tag();
  receipt_.saved_by_ranks = found.world_size();
  receipt_.notes = found.notes();
  receipt_.module_only = module_only_;
  if (is_weights_ && !options.load_module_only)
    note(
        "the checkpoint holds only weights: the optimizer, the schedule, the loss scale and the counters are this engine's "
        "own");
  for (const StateEntry& entry : entries_) comparison_.add(entry);
}

GroupMapping RankLoad::compare_groups() const {
  if (is_weights_) return {std::vector<std::optional<size_t>>(impl_.groups.size()), false, {}};
  std::vector<GroupTensors> here;
  for (size_t g = 0; g < impl_.groups.size(); ++g) {
    GroupTensors& group = here.emplace_back(GroupTensors{impl_.groups[g].name, {}});
    for (const TrainedParameter* parameter : impl_.store.parameters_of(g))
      group.tensors.push_back(saved_name(impl_, parameter->name));
  }
  return gannet::compare_groups(saved_groups(found_), here);
}

std::vector<StateEntry> RankLoad::entries() const {
  std::vector<StateEntry> all = state_entries(
      impl_, [&](const Range&, const TrainedParameter& parameter) { return ranks_differed(found_, parameter.name); });
  if (module_only_) std::erase_if(all, [](const StateEntry& entry) { return entry.kind == StateEntry::Kind::kAverage; });
  if (!wants_states()) return all;
  for (StateEntry& entry : all) {
    const size_t at = entry.kind == StateEntry::Kind::kState ? entry.name.find("/@") : std::string::npos;
    if (at == std::string::npos) continue;
    const size_t group = std::stoul(entry.name.substr(at + 2));
    if (!groups_.saved[group])
      throw Error(
          ErrorCode::kMismatch,
          formatted("checkpoint {}: the optimizer keeps its state '{}' once for a parameter group, and group '{}' has other "
                    "tensors than each group of the checkpoint",
                    found_.path(), entry.name.substr(0, at), impl_.groups[group].name),
          "resume with the parameter groups that it was saved with, or with load_optimizer_states = false");
    entry.name = formatted("{}/@{}", entry.name.substr(0, at), *groups_.saved[group]);
  }
  return all;
}

// Older checkpoints name their optimizer only in their config.
std::string RankLoad::other_optimizer() const {
  if (!wants_states() || !impl_.reducer) return "";
  const Value* saved = found_.document().find("optimizer");
  if (const Value* config = found_.document().find("config"); !saved && config && config->is_dict())
    saved = config->as_dict().find("/optimizer/type");
  const std::string here = impl_.optimizer_name();
  if (!saved || !saved->is_string() || saved->as_string().empty() || here == "user" || saved->as_string() == "user") return "";
  if (lower(saved->as_string()) == lower(here)) return "";
  return formatted("the checkpoint was saved with optimizer '{}', and this engine has '{}'", saved->as_string(), here);
}

LoadReceipt RankLoad::run(const std::set<std::string>& expected_by_all) {
  comparison_.finish(expected_by_all);
  for (const std::string& text : comparison_.notes()) note(text);
  if (const std::string other = other_optimizer(); !other.empty())
    note(formatted("{}: states that both have continue (engine->swap_optimizer(\"NAME\") changes it)", other));
  if (wants_states())
    for (const std::string& text : groups_.notes) note(text);
  receipt_.parameters = comparison_.parameters;
  receipt_.buffers = comparison_.buffers;
  receipt_.states = comparison_.states;
  if (!module_only_) {
    compare_accumulation();
    compare_user_optimizer();
    check_numbers(found_, impl_.skip_policy.is_fp16, wants_states());
  }
  at::NoGradGuard no_grad;
  impl_.progress.tear(formatted("a load of {} failed partway", found_.path()));
  if (!module_only_) impl_.restart_step();  // sums of this step that are in flight would overwrite the saved ones
  read();
  if (options_.custom_load_fn) hand_to_program();
  start_averages();
  if (!module_only_) restore();
  if (wants_states())  // after restore(): the step determines whether the ranks should differ
    if (std::string text = read_rank_states(impl_, found_, ranks_, !options_.custom_load_fn); !text.empty())
      note(std::move(text));
  if (!is_weights_) receipt_.client_state.document = dict("client_state");
  for (size_t g = 0; g < impl_.groups.size(); ++g)
    if (const double* lr = impl_.groups[g].find(GANNET_ROLE_LEARNING_RATE)) receipt_.lr.push_back(*lr);
  receipt_.global_steps = impl_.progress.global_steps;
  receipt_.global_samples = impl_.progress.global_samples;
  return std::move(receipt_);
}

const Value& RankLoad::value(const char* key) const { return saved_value(found_, key); }

bool RankLoad::is_there(const char* prefix) const {
  return std::any_of(found_.tensors().begin(), found_.tensors().end(),
                     [&](const auto& tensor) { return tensor.name.starts_with(prefix); });
}

bool RankLoad::has_same_parts() const {
  for (const char* axis : {kPipeAxis, kTensorAxis})
    if (found_.mesh().size(axis) != ranks_.mesh.size(axis)) return false;
  const Value* there = found_.rank_document(source_rank(found_.mesh(), ranks_.mesh, ranks_.rank)).find("splits");
  return impl_.splits == (there ? there->as_string() : "");
}

// Older checkpoints also store LibTorch's own optimizers in serialised form, because the engine did
// not own their states then.
bool RankLoad::reads_user_optimizer() const {
  return wants_states() && (impl_.user_optimizer || (impl_.torch_optimizer && is_there("optimizer/user")));
}

// The data that a torch::optim::Optimizer serialises follows the order of its parameters, so it
// cannot be repartitioned for a different division of the model.
void RankLoad::compare_user_optimizer() const {
  if (!reads_user_optimizer()) return;
  if (is_there("optimizer/user/") == keeps_model_parts(impl_) && (!keeps_model_parts(impl_) || has_same_parts())) return;
  throw Error(
      ErrorCode::kMismatch,
      formatted("checkpoint {} has the states of the program's own optimizer for the parts of the model that ranks had in "
                "the mesh {}, and here, in the mesh {}, ranks have others",
                found_.path(), found_.mesh().text(), ranks_.mesh.text()),
      "resume with the same stages, tensor ranks and splits, load without load_optimizer_states, or name an optimizer in "
      "the config, whose states fit any mesh");
}

// Checks that the gradients of micro-batches between two boundaries can be restored: they belong to
// the ranks that computed them, or are sums over those ranks.
void RankLoad::compare_accumulation() {
  if (!is_there("gradient/")) return;
  const int64_t accumulation = impl_.settings().accumulation_steps, saved = value("accumulation_steps").as_int();
  holds_sums_ = is_there("gradient/sum/");
  if (!is_same_mesh_ || accumulation != saved) {
    const bool are_numbers = found_.world_size() != ranks_.size;  // otherwise the meshes differ in their axes
    throw Error(
        ErrorCode::kMismatch,
        formatted("checkpoint {} was saved between two steps, by {} with {} accumulation steps: its gradients "
                  "cannot be shared out among {} with {}",
                  found_.path(), are_numbers || is_same_mesh_ ? formatted("{} ranks", found_.world_size()) : found_.mesh().text(),
                  saved, are_numbers || is_same_mesh_ ? formatted("{} ranks", ranks_.size) : ranks_.mesh.text(), accumulation),
        "resume with the same numbers, or save after a step");
  }
  if (!holds_sums_ && !has_same_parts())
    throw Error(ErrorCode::kMismatch,
                formatted("checkpoint {} was saved between two steps, and parameters were split in other boxes than here: its "
                          "gradients are of those",
                          found_.path()),
                "resume with the same splits, or save after a step");
  if (holds_sums_ != impl_.store.shards_gradients())
    throw Error(ErrorCode::kMismatch,
                formatted("checkpoint {} was saved between two steps, with gradients {} the ranks, as ZeRO stage {} has them",
                          found_.path(), holds_sums_ ? "summed over" : "of each of", holds_sums_ ? "2" : "0 or 1"),
                "resume at that stage, or save after a step");
}

void RankLoad::read() {
  std::vector<Target> targets;
  read_entries(targets);
  if (options_.custom_load_fn) {
    const std::string own_buffers = formatted("buffer/{}/", names_.source());
    for (const TensorInfo& saved : found_.tensors())
      for (const std::string& prefix : {std::string("parameter/"), own_buffers})
        if (saved.name.starts_with(prefix)) for_program_[saved.name.substr(prefix.size())] = whole(saved.name, targets);
  }
  if (!module_only_) {
    const std::string mine = rank_name(ranks_.mesh, ranks_.rank);
    for (const auto& [name, generator] : generators(impl_)) random_[name] = whole(formatted("rng/{}/{}", mine, name), targets);
    const std::string streams = formatted("rng/{}/stream/", mine);
    for (const TensorInfo& saved : found_.tensors())
      if (saved.name.starts_with(streams)) {
        const std::string name = saved.name.substr(streams.size());
        const size_t device = name.rfind('/');
        streams_[name.substr(0, device)][name.substr(device + 1)] = whole(saved.name, targets);
      }
    read_accumulation(targets);
    if (reads_user_optimizer()) user_optimizer_ = whole(user_optimizer_name(impl_), targets);
  }
  for (const TensorInfo& saved : found_.tensors())
    if (saved.name.starts_with("client/"))
      receipt_.client_state.tensors.emplace_back(saved.name.substr(7), whole(saved.name, targets));
  found_.read(targets);
  for (auto& [from, into] : copies_) into.copy_(from);
  for (auto& [from, into] : stored_copies_) into->copy_in(0, from.nbytes(), static_cast<const char*>(from.const_data_ptr()));
}

void RankLoad::read_entries(std::vector<Target>& targets) {
  for (const auto& [entry, saved] : comparison_.wanted()) {
    const bool is_of_module = entry.kind != StateEntry::Kind::kState && entry.kind != StateEntry::Kind::kAverage;
    if (options_.custom_load_fn && is_of_module) continue;
    if (entry.stored && saved->dtype == entry.dtype) {
      targets.push_back({saved->name, entry.begin, entry.part, entry.stored, entry.split});
      continue;
    }
    const int64_t begin = entry.whole.defined() ? 0 : entry.begin;
    at::Tensor into = entry.whole.defined() ? entry.whole : entry.part;
    if (entry.stored) into = stored_copies_.emplace_back(at::empty({entry.part.numel()}, entry.dtype), entry.stored).first;
    if (!into.defined()) continue;
    if (!into.is_contiguous() || into.scalar_type() != saved->dtype) {
      const at::Tensor direct = at::empty(into.sizes(), into.options().dtype(saved->dtype));
      copies_.emplace_back(direct, into);
      into = direct;
    }
    if (into.numel() > 0) targets.push_back({saved->name, begin, into.view({-1}), nullptr, entry.split});
  }
}

void RankLoad::read_accumulation(std::vector<Target>& targets) {
  const std::string mine = rank_name(ranks_.mesh, ranks_.rank);
  const auto trained = trained_entries(entries_);
  for (auto& range : impl_.store.ranges()) {
    for (auto& parameter : range.parameters)
      if (at::Tensor held = whole(formatted("gradient/{}/{}", mine, parameter.name), targets); held.defined())
        gradients_.emplace_back(&range, &parameter, held);
    if (!holds_sums_) continue;
    for (const auto& part : range.parts) {
      const std::string& name = range.parameters[part.tensor].name;
      targets.push_back({saved_sum_name(impl_, name), part.begin, range.grad_of(part), nullptr, trained.at(name)->split});
    }
  }
}

at::Tensor RankLoad::whole(const std::string& name, std::vector<Target>& targets) const {
  const TensorInfo* saved = found_.find(name);
  if (!saved) return {};
  at::Tensor tensor = at::empty(saved->shape, saved->dtype);
  if (tensor.numel() > 0) targets.push_back({name, 0, tensor.view({-1})});
  return tensor;
}

void RankLoad::hand_to_program() {
  options_.custom_load_fn(for_program_, *impl_.module);
  impl_.store.refresh_masters();
  if (impl_.reducer) impl_.audit();
}

void RankLoad::start_averages() {
  const bool is_saved = is_there("average/");
  if (!impl_.updater.average().is_on()) {
    if (is_saved && !module_only_)
      note("the checkpoint has a moving average of the parameters, which this engine does not keep (gannet.ema)");
    return;
  }
  std::set<std::string> read;
  for (const auto& [entry, saved] : comparison_.wanted())
    if (entry.kind == StateEntry::Kind::kAverage) read.insert(entry.name);
  impl_.updater.average().set_fresh(read.empty());
  std::string first;
  for (const Range& range : impl_.store.ranges())
    for (size_t p = 0; p < range.parameters.size(); ++p) {
      const std::string& name = range.parameters[p].name;
      if (read.contains(name)) continue;
      impl_.store.restart_average(range, p);
      if (first.empty()) first = name;
    }
  if (first.empty()) return;
  note(module_only_ ? std::string("the moving average (gannet.ema) starts from the loaded parameters")
       : is_saved
           ? formatted("the checkpoint has no moving average of '{}' (gannet.ema): it starts from the loaded parameter", first)
           : std::string("the checkpoint has no moving average (gannet.ema): it starts from the loaded parameters"));
}

}  // namespace gannet
