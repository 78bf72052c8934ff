#include "engine/ties.h"

#include <ATen/core/grad_mode.h>
#include <gannet/error.h>
#include <gannet/split.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "base/format.h"
#include "base/text.h"
#include "control/rendezvous.h"
#include "control/world.h"
#include "engine/open.h"
#include "params/broadcast.h"
#include "params/interception.h"
#include "tensor/move_leaf.h"
#include "tensor/splits.h"

namespace gannet {

void declare_tied(const at::Tensor& parameter, const std::string& name) {
  if (name.empty() || std::any_of(name.begin(), name.end(), [](unsigned char c) { return std::iscntrl(c); }))
    throw Error(ErrorCode::kArgument, "declare_tied: the name of the tensor is empty, or has control characters",
                "give a name that all stages use for this tensor, such as \"embedding\"");
  if (!parameter.defined() || !parameter.is_floating_point())
    throw Error(ErrorCode::kArgument,
                formatted("declare_tied: '{}' is {}", name,
                          parameter.defined() ? formatted("of dtype {}", c10::toString(parameter.scalar_type()))
                                              : std::string("an undefined tensor")),
                "give a floating-point parameter, after register_parameter");
  if (const std::string owner = Ownership::owner_of(parameter); !owner.empty())
    throw Error(ErrorCode::kOrder, formatted("declare_tied: '{}' is trained by {} already", name, owner),
                "declare ties before initialize, in the layer's constructor");
  remember_tie(parameter, name);
}

namespace {

// One rank's declaration of one tensor.
struct DeclaredTie {
  std::string parameter;
  std::vector<std::string> facts;  // [kFacts] the facts that must be the same on all stages
};
using RankTies = std::map<std::string, DeclaredTie>;  // by the name of the tie

constexpr std::string_view kFault = "\x01";  // prefix of an error message sent in place of a rank's declarations; no name has it

enum TieFact : size_t { kShape, kDtype, kSplit, kTraining, kFacts };
constexpr const char* kFactNames[] = {"shape", "dtype", "split", "training"};

uint32_t stage_of(const EngineBase::Impl& impl, uint32_t rank) { return impl.mesh->shape().coordinate(rank, kPipeAxis); }

// Describes how this rank's engine trains the tied parameter: the stages' copies stay equal only if
// they are updated in the same way.
std::string training_of(const EngineBase::Impl& impl, const std::string& tie) {
  for (const Range& range : impl.store.ranges()) {
    if (range.tie != tie) continue;
    const Group& group = impl.groups[range.group];
    std::string text = formatted("in parameter group {}", range.group);
    for (size_t h = 0; h < group.hyper.size(); ++h) text += formatted(", {} {}", group.hyper_names[h], group.hyper[h]);
    return text;
  }
  return "none: it requires no gradient, or is in no parameter group";
}

std::string tie_text(const EngineBase::Impl& impl, const std::string& tie, const std::string& name, const at::Tensor& tensor) {
  const auto split = split_of(tensor);
  return formatted("{}\t{}\t{}\t{}\t{}\t{}\n", tie, name, shape_text(tensor.sizes()), c10::toString(tensor.scalar_type()),
                   split ? to_text(*split) : "none", training_of(impl, tie));
}

// Lists each tensor once, under its first name.
std::vector<std::pair<std::string, at::Tensor>> tied_parameters(const torch::nn::Module& module) {
  std::vector<std::pair<std::string, at::Tensor>> all;
  std::map<std::string, std::string> known;  // the parameter of each tie
  std::set<const void*> seen;
  for (const auto& entry : module.named_parameters()) {
    const std::string tie = tie_of(entry.value());
    if (tie.empty() || !seen.insert(entry.value().unsafeGetTensorImpl()).second) continue;
    if (const auto [place, is_new] = known.emplace(tie, entry.key()); !is_new)
      throw Error(ErrorCode::kConfig,
                  formatted("parameters '{}' and '{}' of one module are both declared as tied tensor '{}'", place->second,
                            entry.key(), tie),
                  "within a stage register the same tensor under both names; stages tie one parameter each");
    all.emplace_back(entry.key(), entry.value());
  }
  return all;
}

RankTies ties_in(const std::string& text) {
  RankTies all;
  for (const std::string& line : split(text, '\n')) {
    const std::vector<std::string> fields = split(line, '\t');
    if (fields.size() != 2 + kFacts) continue;
    all.emplace(fields[0], DeclaredTie{fields[1], {fields.begin() + 2, fields.end()}});
  }
  return all;
}

// Returns the tie's parameter on each stage that holds it. All ranks of such a stage must have
// declared it.
std::map<uint32_t, std::string> tie_holders(const EngineBase::Impl& impl, const std::string& tie,
                                            const std::vector<RankTies>& of_ranks) {
  std::map<uint32_t, std::string> holders;
  std::map<uint32_t, uint32_t> first;  // the first rank of each stage that has declared it
  std::map<uint32_t, std::vector<uint32_t>> lacking;
  for (uint32_t rank = 0; rank < of_ranks.size(); ++rank) {
    const uint32_t stage = stage_of(impl, rank);
    const auto found = of_ranks[rank].find(tie);
    if (found == of_ranks[rank].end()) {
      lacking[stage].push_back(rank);
      continue;
    }
    first.emplace(stage, rank);
    const auto [place, is_new] = holders.emplace(stage, found->second.parameter);
    if (!is_new && place->second != found->second.parameter)
      throw Error(ErrorCode::kMismatch,
                  formatted("tied tensor '{}' is parameter '{}' on rank {} and '{}' on rank {}, both of pipeline stage {}", tie,
                            place->second, first[stage], found->second.parameter, rank, stage),
                  "declare the same parameter on every rank of a stage");
  }
  for (const auto& [stage, parameter] : holders)
    if (const auto ranks = lacking.find(stage); ranks != lacking.end())
      throw Error(
          ErrorCode::kMismatch,
          formatted("parameter '{}' is declared as tied tensor '{}' on rank {}, and not on {}, of the same pipeline stage {}",
                    parameter, tie, first[stage], control::name_ranks(ranks->second), stage),
          "call declare_tied on every rank of the stage");
  if (holders.size() == 1)
    throw Error(ErrorCode::kConfig,
                formatted("parameter '{}' is declared as tied tensor '{}' only on pipeline stage {}", holders.begin()->second,
                          tie, holders.begin()->first),
                "declare the copies of the other stages under the same name, or leave the declaration out");
  return holders;
}

// Compares every rank with the rank of the first stage that has the same coordinates along the
// other axes.
void require_same_facts(const EngineBase::Impl& impl, const std::string& tie, const std::vector<RankTies>& of_ranks,
                        uint32_t first_stage) {
  for (const std::vector<uint32_t>& ranks : impl.mesh->shape().groups(kPipeAxis)) {
    const uint32_t of_first = ranks[first_stage];
    const DeclaredTie& expected = of_ranks[of_first].at(tie);
    for (uint32_t rank : ranks) {
      const auto found = of_ranks[rank].find(tie);
      if (found == of_ranks[rank].end()) continue;
      for (size_t f = 0; f < kFacts; ++f)
        if (found->second.facts[f] != expected.facts[f])
          throw Error(ErrorCode::kMismatch,
                      formatted("tied tensor '{}' differs between pipeline stages: the {} of '{}' on rank {} is {}, that of '{}' "
                                "on rank {} is {}",
                                tie, kFactNames[f], expected.parameter, of_first, expected.facts[f], found->second.parameter,
                                rank, found->second.facts[f]),
                      "give every stage's copy the same shape, dtype, split and parameter group, and train all or none of them");
    }
  }
}

std::string stages_text(const std::vector<uint32_t>& stages) {
  std::vector<std::string> texts;
  for (uint32_t stage : stages) texts.push_back(formatted("{}", stage));
  return join(texts, ", ");
}

}  // namespace

std::string declared_ties(const EngineBase::Impl& impl) {
  std::string all;
  if (!impl.mesh->has_pipe_stages()) return all;
  for (const auto& [name, tensor] : tied_parameters(*impl.module)) all += formatted("{}\t{}\n", tie_of(tensor), name);
  return all;
}

std::unique_ptr<Ties> Ties::agree(const EngineBase::Impl& impl) {
  std::vector<std::pair<std::string, at::Tensor>> mine;
  std::optional<Error> fault;  // a fault of this rank's module; the other ranks wait for its message
  try {
    mine = tied_parameters(*impl.module);
  } catch (const Error& error) {
    if (!impl.mesh->has_pipe_stages()) throw;
    fault = error;
  }
  if (!impl.mesh->has_pipe_stages()) return nullptr;
  std::string text = fault ? formatted("{}{}", kFault, fault->message()) : "";
  for (const auto& [name, tensor] : mine) text += tie_text(impl, tie_of(tensor), name, tensor);
  std::vector<RankTies> of_ranks;
  std::set<std::string> names;
  for (const std::string& of_rank : impl.world_group->gather_texts(text)) {
    if (of_rank.starts_with(kFault))
      throw Error(ErrorCode::kConfig, formatted("rank {}: {}", of_ranks.size(), of_rank.substr(kFault.size())),
                  "within a stage register the same tensor under both names; stages tie one parameter each");
    of_ranks.push_back(ties_in(of_rank));
    for (const auto& [tie, unused] : of_ranks.back()) names.insert(tie);
  }
  if (names.empty()) return nullptr;
  if (impl.settings().checkpoint_on_each_machine)
    throw Error(ErrorCode::kUnsupported,
                formatted("tied tensor '{}' is saved by one stage of the pipeline, and with "
                          "checkpoint.use_node_local_storage the machine of another one would not have it",
                          *names.begin()),
                "save into a folder that all machines share, or keep the stages' parameters apart");
  auto ties = std::make_unique<Ties>();
  ties->declared_ = declared_ties(impl);
  const uint32_t stage = impl.mesh->pipe_stage();
  for (const std::string& name : names) {
    const auto holders = tie_holders(impl, name, of_ranks);
    require_same_facts(impl, name, of_ranks, holders.begin()->first);
    Tie& tie = ties->ties_.emplace_back();
    tie.name = name;
    for (const auto& [holder, parameter] : holders) {
      tie.stages.push_back(holder);
      tie.parameters.push_back(parameter);
    }
    tie.is_first = tie.stages[0] == stage;
    for (const auto& [parameter, tensor] : mine)
      if (tie_of(tensor) == name) {
        tie.parameter = parameter;
        tie.tensor = tensor;
      }
  }
  ties->make_groups(impl);
  return ties;
}

// Every rank of the mesh creates every group, in the same order, because subset() counts the
// groups. It keeps only its own.
void Ties::make_groups(const EngineBase::Impl& impl) {
  std::set<std::vector<uint32_t>> distinct;
  for (const Tie& tie : ties_) distinct.insert(tie.stages);
  for (const std::vector<uint32_t>& stages : distinct) {
    StageGroup& group = groups_.emplace_back();
    group.stages = stages;
    for (const std::vector<uint32_t>& along_pipe : impl.mesh->shape().groups(kPipeAxis)) {
      std::vector<uint32_t> ranks;
      for (uint32_t stage : stages) ranks.push_back(along_pipe[stage]);
      if (auto own = impl.process_group->subset(ranks)) group.ranks = std::move(own);
    }
    if (group.ranks) group.comm = comm_of(impl, *group.ranks);
    for (Tie& tie : ties_)
      if (tie.stages == stages) {
        tie.ranks = group.ranks.get();
        tie.comm = group.comm.get();
      }
  }
}

const Tie* Ties::find(const std::string& parameter) const {
  for (const Tie& tie : ties_)
    if (tie.tensor.defined() && tie.parameter == parameter) return &tie;
  return nullptr;
}

// Called before the store takes the parameters: the store then gives all ranks along the data axis
// the values of the stage's first rank.
void Ties::share_first_values(const RankContext& context) const {
  const at::NoGradGuard no_grad;
  for (const Tie& tie : ties_) {
    if (!tie.ranks) continue;
    at::Tensor values = tie.tensor.detach().to(context.device, tie.tensor.scalar_type(), false, /*copy=*/true).contiguous();
    broadcast({tie.comm, &tie.ranks->links().host}, values);
    at::Tensor parameter = tie.tensor;
    const auto* storage = parameter.storage().unsafeGetStorageImpl();
    if (!zero::is_watched(storage)) {
      parameter.detach().copy_(values);
      continue;
    }
    zero::release_ownership(storage);  // the parameter was built under zero::Init, and is sharded again when it is placed
    move_leaf(parameter, values);
  }
}

void Ties::adopt(ParameterStore& store) const {
  for (Range& range : store.ranges())
    for (const Tie& tie : ties_)
      if (range.tie == tie.name) range.is_counted_elsewhere = !tie.is_first;
}

namespace {

// Sums in device memory, where the Comm works. Gradients kept in host memory are staged through
// device memory.
void sum_over(DeviceComm& ranks, const at::Tensor& gradient, const RankContext& context, int64_t most_numel) {
  if (gradient.device() == context.device) return ranks.all_reduce(gradient).block();
  for (int64_t begin = 0; begin < gradient.numel(); begin += most_numel) {
    const at::Tensor part = gradient.narrow(0, begin, std::min(most_numel, gradient.numel() - begin));
    const at::Tensor there = part.to(context.device);
    ranks.all_reduce(there).block();
    part.copy_(there);
  }
}

}  // namespace

void Ties::sum_gradients(const EngineBase::Impl& impl) const {
  const at::NoGradGuard no_grad;
  std::vector<double> updates(ties_.size());  // [ties] 1 if this rank updates the tensor in this step
  std::vector<const Range*> ranges(ties_.size());
  for (size_t t = 0; t < ties_.size(); ++t)
    for (const Range& range : impl.store.ranges())
      if (range.tie == ties_[t].name && !is_skipped(range, 0, *impl.reducer)) {
        ranges[t] = &range;
        updates[t] = 1;
      }
  HostGroup& model = impl.mesh->model()->links().host;
  std::vector<double> totals = updates;
  model.all_reduce(totals.data(), totals.size());
  for (size_t t = 0; t < ties_.size(); ++t) {
    const Tie& tie = ties_[t];
    if (totals[t] != 0 && totals[t] != static_cast<double>(tie.stages.size() * impl.mesh->shape().size(kTensorAxis)))
      throw Error(
          ErrorCode::kMismatch,
          formatted("tied tensor '{}' ('{}' on stage {}) is trained on some of the pipeline stages {} and frozen on others",
                    tie.name, tie.parameters[0], tie.stages[0], stages_text(tie.stages)),
          "call requires_grad_ alike on the copies of all stages");
    if (!ranges[t]) continue;
    for (const zero::TensorPart& part : ranges[t]->parts)
      sum_over(*tie.comm, ranges[t]->grad_of(part), impl, impl.store.bucket_numel());
  }
}

std::string saved_name(const EngineBase::Impl& impl, const std::string& parameter) {
  const Tie* const tie = impl.ties ? impl.ties->find(parameter) : nullptr;
  return tie ? tie->parameters[0] : parameter;
}

std::string saved_sum_name(const EngineBase::Impl& impl, const std::string& parameter) {
  const bool is_tied = impl.ties && impl.ties->find(parameter);
  return is_tied ? formatted("gradient/sum/pipe{}/{}", impl.mesh->pipe_stage(), parameter)
                 : formatted("gradient/sum/{}", parameter);
}

}  // namespace gannet
