// swap_optimizer: replaces the optimizer plugin of all parameter groups between two steps.
// Everything that can fail is prepared while the old optimizer is still in place. Then the ranks
// agree, and the rest cannot fail.
#include <ATen/core/grad_mode.h>
#include <gannet/log.h>

#include <algorithm>
#include <map>

#include "base/format.h"
#include "base/outcome.h"
#include "base/text.h"
#include "config/parse.h"
#include "control/world.h"
#include "engine/checkpoint/rank_states.h"
#include "engine/gate.h"
#include "engine/group_optimizers.h"
#include "engine/impl.h"
#include "engine/report.h"
#include "plugin/schema.h"
#include "tensor/dtype.h"
#include "tensor/torch_errors.h"
#include "update/group_states.h"

namespace gannet {
namespace {

constexpr const char* kCall = "swap_optimizer";

// The new optimizers, states and rates, which will replace the engine's.
struct PreparedSwap {
  std::vector<Group> groups;               // optimizer, hyperparameters, group_states
  std::vector<std::vector<Array>> states;  // [ranges][states]
  std::vector<bool> starts_over;           // [groups] true if some state is new: updates are then counted from 1
  std::vector<bool> is_unmet;              // [groups] true: set its requirements on the ranges
  Schedule::Values rates;
  SwapReceipt receipt;
};

void check_moment(EngineBase::Impl& impl) {
  gate::require(impl, Call::kSwapOptimizer);
  if (impl.user_optimizer || impl.torch_optimizer)
    throw Error(
        ErrorCode::kUnsupported,
        "swap_optimizer() was called, and the program's own torch::optim::Optimizer steps the parameters: its states are its own",
        "name an optimizer in the config instead of passing one to initialize");
  if (impl.progress.micro_in_step > 0 || impl.progress.holds_micro_batch() || impl.reducer->holds_sums())
    throw Error(ErrorCode::kOrder,
                formatted("swap_optimizer() was called in the middle of step {}: {} of its {} micro-batches have ended{}",
                          impl.progress.global_steps + 1, impl.progress.micro_in_step, impl.settings().accumulation_steps,
                          impl.progress.holds_micro_batch() ? ", and one is between forward() and step()" : ""),
                "call it after the step() of a boundary, or drop the gradients with zero_grad()");
  for (size_t g = 0; g < impl.groups.size(); ++g)
    if (ranks_differ(impl, g))
      throw Error(
          ErrorCode::kOrder,
          formatted("swap_optimizer() was called after a local step of optimizer '{}', when every rank has other parameters",
                    impl.groups[g].optimizer->plugin().name()),
          "call it after a step that averages: while engine->parameters_differ() is false");
}

// Reads the params that the program passed: a dictionary, or JSON text with the positions of its
// members.
config::Tree read_params(const Value& params) {
  if (params.is_dict()) return {params.as_dict(), {}, {}};
  if (params.is_string()) return config::parse_text(params.as_string(), "swap_optimizer's params");
  throw Error(ErrorCode::kArgument, formatted("swap_optimizer was given {} as params", params.type_name()),
              "give a dictionary, or JSON text: R\"({\"lr\": 1e-4})\"");
}

// Returns the group's overrides that match a parameter of the plugin. Overrides from the
// config or initialize were meant for a different plugin. Those passed to the swap are for this
// plugin: all of them are returned, and its schema checks them.
Dict overrides_of(const EngineBase::Impl& impl, const plugin::Plugin& plugin, size_t group, const std::vector<Dict>& given,
                  SwapReceipt& receipt) {
  if (!given.empty()) return given[group];
  Dict known;
  const Dict* old = impl.group_rules.overrides(group);
  if (!old) return known;
  const auto specs = plugin::specs_of(*plugin.descriptor);
  for (const auto& [key, value] : old->entries()) {
    if (std::any_of(specs.begin(), specs.end(), [&, &name = key](const auto* spec) { return name == spec->name; }))
      known[key] = value;
    else
      receipt.notes.push_back(
          formatted("{} of group '{}' has no effect: {} has no such parameter", key, impl.groups[group].name, plugin.name()));
  }
  return known;
}

// The partition was made for the optimizer that the engine began with. Returns whether the group's
// ranges fit this optimizer as they are.
bool is_served(const EngineBase::Impl& impl, const Optimizer& optimizer, size_t group) {
  for (const Range& range : impl.store.ranges())
    if (range.group == group && ((optimizer.needs_whole_tensors() && !range.keeps_whole_tensors) ||
                                 static_cast<int64_t>(optimizer.range_alignment()) > range.alignment))
      return false;
  return true;
}

// Returns whether tensors begin where the optimizer's blocks of elements do. In a range that was
// laid out for smaller blocks, tensors are packed without gaps.
bool is_aligned(const EngineBase::Impl& impl, const Optimizer& optimizer, size_t group) {
  for (const Range& range : impl.store.ranges())
    if (range.group == group &&
        static_cast<int64_t>(optimizer.range_alignment()) > std::max<int64_t>(range.alignment, zero::kAlignment))
      return false;
  return true;
}

void check_cuts(const EngineBase::Impl& impl, PreparedSwap& made) {
  const bool is_cut = impl.store.is_sharded() || impl.store.gathers() || impl.state_tier || impl.param_tier;
  for (size_t g = 0; g < made.groups.size(); ++g) {
    const Optimizer& optimizer = *made.groups[g].optimizer;
    for (const Range& range : impl.store.ranges())
      if (range.group == g && optimizer.owns_grad_reduction() && impl.comm->size() > 1 && !range.is_optimizer_reduced)
        throw Error(
            ErrorCode::kUnsupported,
            formatted("optimizer '{}' averages gradients itself, bucket by bucket, and the buckets of group '{}' were cut "
                      "for '{}', which does not",
                      optimizer.plugin().name(), impl.groups[g].name, impl.groups[g].optimizer->plugin().name()),
            "begin the run with it in the config: it can be swapped for the other, and back");
    made.is_unmet.push_back(!is_served(impl, optimizer, g));
    if (!made.is_unmet[g] || (!is_cut && is_aligned(impl, optimizer, g))) continue;
    throw Error(
        ErrorCode::kUnsupported,
        formatted("optimizer '{}' needs {}, and the partition of group '{}' was cut for '{}', which does not",
                  optimizer.plugin().name(),
                  optimizer.needs_whole_tensors() ? std::string("whole tensors")
                                                  : formatted("ranges at multiples of {} elements", optimizer.range_alignment()),
                  impl.groups[g].name, impl.groups[g].optimizer->plugin().name()),
        "save a checkpoint, and resume from it with the new optimizer in the config and load_optimizer_states = false; or "
        "begin the run with the optimizer that asks for more, and swap from it");
  }
}

at::ScalarType dtype_of(const Optimizer::State& state) {
  return state.dtype == GANNET_DTYPE_NONE ? at::kFloat : to_scalar_type(state.dtype);
}

const Optimizer::State* find(const std::vector<Optimizer::State>& states, const std::string& name) {
  const auto found = std::find_if(states.begin(), states.end(), [&](const auto& state) { return state.name == name; });
  return found == states.end() ? nullptr : &*found;
}

// The outcome for each state in each group. States are listed by name: "exp_avg" or, if groups
// differ, "exp_avg of '*.bias'".
class StateFates {
 public:
  enum Fate { kKept, kFilled, kDropped, kCount };
  void add(const std::string& state, Fate fate, const std::string& group) { fates_[state][fate].push_back(group); }
  void give(SwapReceipt& receipt) const {
    std::vector<std::string>* const lists[kCount] = {&receipt.kept, &receipt.filled, &receipt.dropped};
    for (const auto& [state, by_fate] : fates_)
      for (const auto& [fate, groups] : by_fate)
        lists[fate]->push_back(by_fate.size() == 1 ? state : formatted("{} of '{}'", state, join(groups, "', '")));
  }

 private:
  std::map<std::string, std::map<Fate, std::vector<std::string>>> fates_;
};

void prepare_states(EngineBase::Impl& impl, PreparedSwap& made) {
  StateFates fates;
  std::vector<std::vector<bool>> is_kept;  // [groups][states]
  for (size_t g = 0; g < made.groups.size(); ++g) {
    const auto& before = impl.groups[g].optimizer->states();
    const auto& after = made.groups[g].optimizer->states();
    auto& kept = is_kept.emplace_back(after.size());
    made.groups[g].group_states.resize(after.size());
    for (size_t s = 0; s < after.size(); ++s) {
      const Optimizer::State* same = find(before, after[s].name);
      kept[s] =
          same && same->extent == after[s].extent && same->flags == after[s].flags && same->limit == after[s].limit &&
          (same->dtype == after[s].dtype || (same->extent != GANNET_STATE_PER_ELEMENT && dtype_of(*same) == dtype_of(after[s])));
      if (same && same->extent == GANNET_STATE_PER_ELEMENT && same->extent == after[s].extent && same->flags == after[s].flags &&
          !kept[s]) {
        // One optimizer may name a dtype where the other takes the masters' dtype.
        kept[s] = true;
        for (const Range& range : impl.store.ranges()) {
          const auto in_full = [&](gannet_dtype dtype) {
            return dtype == GANNET_DTYPE_NONE ? range.master_dtype : to_scalar_type(dtype);
          };
          if (range.group == g && in_full(same->dtype) != in_full(after[s].dtype)) kept[s] = false;
        }
      }
      if (kept[s] && after[s].extent != GANNET_STATE_PER_ELEMENT)
        made.groups[g].group_states[s] = impl.groups[g].group_states[static_cast<size_t>(same - before.data())];
      fates.add(after[s].name, kept[s] ? StateFates::kKept : StateFates::kFilled, impl.groups[g].name);
    }
    for (const auto& state : before)
      if (const Optimizer::State* same = find(after, state.name); !same || !kept[static_cast<size_t>(same - after.data())])
        fates.add(state.name, StateFates::kDropped, impl.groups[g].name);
    made.starts_over.push_back(std::find(kept.begin(), kept.end(), false) != kept.end());
    for (size_t s = 0; s < after.size(); ++s) {  // grow_squares() creates the matrices that are not kept
      if (!kept[s] || !after[s].has_matrices()) continue;
      made.groups[g].squares.resize(after.size());
      made.groups[g].squares[s] = impl.groups[g].squares[static_cast<size_t>(find(before, after[s].name) - before.data())];
    }
    grow_group_states(made.groups[g]);
    grow_squares(made.groups[g], g, impl, impl.store);
  }
  for (const Range& range : impl.store.ranges()) {
    const Optimizer& optimizer = *made.groups[range.group].optimizer;
    const auto& before = impl.groups[range.group].optimizer->states();
    ParameterStore::require_support(range, optimizer);
    auto& states = made.states.emplace_back();
    for (size_t s = 0; s < optimizer.states().size(); ++s)
      states.push_back(is_kept[range.group][s]
                           ? range.states[static_cast<size_t>(find(before, optimizer.states()[s].name) - before.data())]
                           : impl.store.make_state(range, optimizer.states()[s]));
  }
  fates.give(made.receipt);
}

PreparedSwap prepare(EngineBase::Impl& impl, const std::string& type, const Value& params, const std::vector<Dict>& overrides) {
  check_moment(impl);
  if (!overrides.empty() && overrides.size() != impl.groups.size())
    throw Error(ErrorCode::kArgument,
                formatted("swap_optimizer was given overrides for {} parameter groups, and there are {}", overrides.size(),
                          impl.groups.size()),
                "give one dictionary for each group, empty where it has the params as they are");
  PreparedSwap made;
  made.receipt.from = impl.groups[0].optimizer->plugin().name();
  const plugin::Plugin& plugin =
      impl.registry->require(GANNET_KIND_OPTIMIZER, type, impl.updates_on_host() ? "cpu" : impl.accelerator->plugin_device());
  made.receipt.to = plugin.name();
  const config::Tree tree = read_params(params);
  const auto where = [&](const std::string& member) {
    const std::string place = tree.origin_of(config::pointer("", member)).to_string();
    return place.empty() ? std::string("swap_optimizer's params") : place;
  };
  made.groups = make_optimizers(impl, impl.store, impl.groups, plugin, [&](size_t g) {
    const Dict own = overrides_of(impl, plugin, g, overrides, made.receipt);
    GroupParams given{tree.root, where};
    for (const auto& [key, value] : own.entries()) given.params[key] = value;
    if (!own.empty())
      given.where = [own, where, name = impl.groups[g].name](const std::string& member) {
        return own.find(member) ? formatted("the override of group '{}'", name) : where(member);
      };
    return given;
  });
  check_cuts(impl, made);
  if (impl.schedule.exists())
    impl.schedule.check(made.groups,
                        impl.schedule.has_function() ? std::string("the program's schedule")
                                                     : formatted("scheduler '{}'", impl.schedule.plugin()->plugin().name()),
                        formatted("optimizer '{}'", plugin.name()));
  made.rates = impl.schedule.now(made.groups);
  prepare_states(impl, made);
  return made;
}

// Compares the requests of the ranks. If one rank met an error, all ranks throw it.
void agree(EngineBase::Impl& impl, const std::string& mine) {
  const std::vector<std::string> texts = results_of(impl.world_group->gather_texts(mine));
  if (const std::string differs = control::disagreement("the optimizer and the params given to swap_optimizer", texts);
      !differs.empty())
    throw Error(ErrorCode::kMismatch, differs, "give the same on every rank; the former optimizer is still in use");
}

std::string asked_for(const EngineBase::Impl& impl, const std::vector<Group>& groups) {
  const plugin::Plugin& plugin = groups[0].optimizer->plugin();
  std::string text = formatted("{} {} {}\n", plugin.name(), plugin.version(), plugin.hash);
  for (const Group& group : groups) {
    text += formatted("group '{}':", group.name);
    for (size_t h = 0; h < group.hyper.size(); ++h)
      text += formatted(" {} = {}", group.hyper_names[h], Value(group.hyper[h]).to_json());
    text += '\n';
  }
  return text + formatted("update {}, position {}\n", impl.progress.applied_steps, impl.schedule.position);
}

void commit(EngineBase::Impl& impl, PreparedSwap& made, std::unique_ptr<Agreement>& agreement) noexcept {
  impl.updater.abandon();  // page boundaries may change
  impl.updater.perturbation().release();
  for (size_t r = 0; r < made.states.size(); ++r) std::swap(impl.store.ranges()[r].states, made.states[r]);
  for (size_t g = 0; g < made.groups.size(); ++g) {
    take_optimizer(impl.groups[g], made.groups[g]);
    if (!made.starts_over[g]) continue;
    impl.groups[g].lag = impl.progress.applied_steps;
    for (Range& range : impl.store.ranges())
      if (range.group == g)
        for (auto& parameter : range.parameters) parameter.lag = impl.progress.applied_steps;
  }
  impl.schedule.set(made.rates);
  std::swap(impl.agreement, agreement);
}

}  // namespace

std::string SwapReceipt::to_string() const {
  std::string text = formatted("optimizer {} in place of {}", to, from);
  const std::pair<const char*, const std::vector<std::string>*> lists[] = {
      {"kept", &kept}, {"filled with the initial value", &filled}, {"dropped", &dropped}};
  for (const auto& [what, names] : lists)
    if (!names->empty()) text += formatted("; {}: {}", what, join(*names, ", "));
  for (const auto& line : notes) text += formatted("\n  {}", line);
  return text;
}

SwapReceipt EngineBase::swap_optimizer(const std::string& type, const Value& params, const std::vector<Dict>& overrides) try {
  Impl& impl = *impl_;
  const Calls::Entered entered(impl.calls, kCall);
  wait_for_checkpoint();  // the save reads the states
  auto call = impl.process_group->world()->enter(*impl.world_group, kCall, impl.progress.global_steps);
  const at::NoGradGuard no_grad;
  // After the audit, new parameters have joined their groups.
  if (impl.reducer && impl.progress.is_whole() && !gate::is_in(impl, gate::State::kTakenOver)) impl.audit();
  PreparedSwap made;
  std::unique_ptr<Agreement> agreement;
  agree(impl, outcome([&] {  // catches everything: the other ranks wait for this rank's result
          try {
            made = prepare(impl, type, params, overrides);
            agreement = std::make_unique<Agreement>(impl.number_in_group, made.groups);
            std::string text = asked_for(impl, made.groups) + formatted("params {}\n", Value(read_params(params).root).to_json());
            for (const Dict& one : overrides) text += formatted("override {}\n", Value(one).to_json());
            return text;
          } catch (...) {
            rethrow_as_ours(kCall);
          }
        }));
  for (size_t g = 0; g < made.groups.size(); ++g)
    if (made.is_unmet[g]) {
      impl.store.align_ranges(g, static_cast<int64_t>(made.groups[g].optimizer->range_alignment()));
      if (made.groups[g].optimizer->needs_whole_tensors()) impl.store.keep_whole_tensors(g);
    }
  commit(impl, made, agreement);
  collect_losses(impl);
  const std::string sentence = made.receipt.to_string();
  if (impl.is_first()) log_info(sentence);
  if (impl.reporter) impl.reporter->event("swap", impl.progress.global_steps, sentence);
  return made.receipt;
} catch (...) {
  rethrow_as_ours(kCall);
}

}  // namespace gannet
