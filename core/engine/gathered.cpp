// Gathers parameters on demand: for operators between forward and step, and at any time for a
// zero::GatheredParameters guard.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <gannet/log.h>
#include <gannet/zero.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <exception>

#include "base/format.h"
#include "base/text.h"
#include "control/world.h"
#include "engine/checkpoint/loaded_memory.h"
#include "engine/gate.h"
#include "engine/impl.h"
#include "engine/optimizer_reduction.h"
#include "params/broadcast.h"
#include "tensor/dtype.h"
#include "tensor/move_leaf.h"
#include "tensor/torch_errors.h"
#include "tensor/version.h"

namespace gannet {

namespace {

struct OperatorInterception {  // intercepts operators on one of the program's own threads
  zero::Interception interception;
};

}  // namespace

std::shared_ptr<void> EngineBase::guard() {
  return impl_->store.gathers() ? std::make_shared<OperatorInterception>() : std::shared_ptr<void>();
}

namespace zero {

struct GatheredParameters::State {
  struct ChosenParameter {
    Range* range;  // null: neither trained nor sharded
    size_t parameter;
    at::Tensor tensor;
    bool is_trained;
    const c10::StorageImpl* storage = nullptr;  // the tensor's storage when the guard began
    uint32_t version = 0;
    std::string name() const { return range ? range->parameters[parameter].name : shape_text(tensor.sizes().vec()); }
  };
  EngineBase::Impl* impl;
  std::weak_ptr<void> engine;  // expires with the engine that `impl` is part of
  std::optional<uint32_t> write_from;
  std::vector<ChosenParameter> chosen;
  std::vector<size_t> residents;
  std::string name;  // the name of the first parameter in `chosen`
  int exceptions = std::uncaught_exceptions();
  bool is_over = false;

  void find(const std::vector<at::Tensor>& parameters);
  void agree() const;
  uint32_t root_in(const ReductionGroup& ranks) const;
  bool is_replaced(const ChosenParameter& one) const;
  std::vector<size_t> replaced_anywhere() const;
  void publish(const ChosenParameter& one, bool is_replaced_anywhere);
  void take_new_memory(const ChosenParameter& one);
  std::string written() const;
  void end();
};

void GatheredParameters::State::find(const std::vector<at::Tensor>& parameters) {
  std::unordered_map<const void*, ChosenParameter> known;
  for (auto* ranges : {&impl->store.ranges(), &impl->store.frozen()})
    for (Range& range : *ranges)
      for (size_t p = 0; p < range.parameters.size(); ++p)
        if (!range.parameters[p].is_moved)
          known[range.parameters[p].tensor.unsafeGetTensorImpl()] = {&range, p, range.parameters[p].tensor,
                                                                     ranges == &impl->store.ranges()};
  for (auto& parameter : impl->module->parameters())
    known.try_emplace(parameter.unsafeGetTensorImpl(), ChosenParameter{nullptr, 0, parameter, false});
  for (const at::Tensor& parameter : parameters) {
    const auto found = known.find(parameter.unsafeGetTensorImpl());
    if (found == known.end())
      throw Error(
          ErrorCode::kArgument,
          formatted("zero::GatheredParameters was given a tensor of shape {} that is not a parameter of the engine's module",
                    shape_text(parameter.sizes().vec())),
          "give the module's own tensors (module->parameters()), not views or copies of them");
    const ChosenParameter& one = found->second;
    if (std::any_of(chosen.begin(), chosen.end(),
                    [&](const ChosenParameter& earlier) { return earlier.tensor.is_same(one.tensor); }))
      continue;
    chosen.push_back(one);
    if (one.range && one.range->parameters[one.parameter].resident)
      residents.push_back(*one.range->parameters[one.parameter].resident);
  }
}

void GatheredParameters::State::agree() const {
  std::string text = write_from ? formatted("written from rank {}", *write_from) : "read";
  for (const ChosenParameter& one : chosen) text += formatted(" {}", one.name());
  const auto texts = impl->host_group->gather_texts(text);
  for (uint32_t rank = 1; rank < texts.size(); ++rank)
    if (texts[rank] != texts[0])
      throw Error(
          ErrorCode::kMismatch,
          formatted(
              "the ranks ask zero::GatheredParameters for different things: rank 0 for parameters {}, rank {} for parameters {}",
              texts[0].substr(0, 200), rank, texts[rank].substr(0, 200)),
          "make the same guards, with the same write_from, in the same order on every rank");
  if (write_from && *write_from >= impl->comm->size())
    throw Error(ErrorCode::kArgument,
                formatted("zero::GatheredParameters: write_from is rank {}, and there are {}", *write_from, impl->comm->size()),
                "ranks are counted from 0");
}

// Returns `write_from` as a rank of `ranks`. If that rank does not hold these experts, returns the
// rank that does and differs from it only along the expert axis.
uint32_t GatheredParameters::State::root_in(const ReductionGroup& ranks) const {
  if (ranks.comm == impl->comm.get()) return *write_from;
  return impl->mesh->refined().coordinate(impl->mesh->shape().group(kDataAxis, impl->world_group->rank())[*write_from],
                                          kExpertDataAxis);
}

// Returns whether set_data() or torch::load replaced the tensor's memory under the guard. The audit
// knows whether a trained parameter was replaced; for others, the guard compares storages.
bool GatheredParameters::State::is_replaced(const ChosenParameter& one) const {
  if (!one.range) return false;
  if (one.is_trained) return impl->reducer && impl->module_audit->is_replaced(one.range->parameters[one.parameter]);
  return storage_of(one.tensor) != one.storage;
}

// Returns the indices into `chosen` of parameters that have new memory on some rank: on the writing
// rank, and maybe on others. Every rank calls it.
std::vector<size_t> GatheredParameters::State::replaced_anywhere() const {
  std::string mine;
  for (const ChosenParameter& one : chosen) mine += is_replaced(one) ? '1' : '0';
  std::vector<std::string> all{mine};
  if (impl->comm->size() > 1) all = impl->host_group->gather_texts(mine);
  std::vector<size_t> replaced;
  for (size_t i = 0; i < chosen.size(); ++i)
    if (std::any_of(all.begin(), all.end(), [&](const std::string& of_rank) { return i < of_rank.size() && of_rank[i] == '1'; }))
      replaced.push_back(i);
  return replaced;
}

// Broadcasts one rank's values of a full parameter; if it has a range, updates shards and masters.
void GatheredParameters::State::publish(const ChosenParameter& one, bool is_replaced_anywhere) {
  if (is_replaced_anywhere) return take_new_memory(one);
  if (!one.range && storage_of(one.tensor) != one.storage) {
    at::Tensor frozen = one.tensor;
    const at::Tensor meant = as_a_file_has_it(one.name(), frozen, {false, frozen.numel(), 0});
    if (!meant.is_same(frozen)) move_leaf(frozen, meant.detach().to(frozen.scalar_type()));
  }
  const at::Tensor whole = one.tensor.detach();
  const ReductionGroup ranks = one.range ? one.range->ranks : impl->ranks_of(split_of(one.tensor).get());
  broadcast(ranks, whole, root_in(ranks));
  if (one.range) impl->store.keep_written(*one.range, one.parameter, whole.flatten());
}

// Takes over values from new memory in the precision of that memory, which may have come from a
// file. Ranks without new memory receive the values in a buffer.
void GatheredParameters::State::take_new_memory(const ChosenParameter& one) {
  const bool is_mine = is_replaced(one);
  const at::Tensor value = impl->module_audit->value_given(*one.range, one.parameter, is_mine);
  const at::Tensor whole = value.to(impl->device, one.range->master_dtype, /*non_blocking=*/false, /*copy=*/true).contiguous();
  broadcast(one.range->ranks, whole, root_in(one.range->ranks));
  if (!one.is_trained) {
    impl->store.keep_written(*one.range, one.parameter, whole.flatten().to(one.range->dtype));
    if (is_mine) impl->store.restore_memory(*one.range, one.parameter);
    return;
  }
  double is_in_full = value.scalar_type() == one.range->dtype ? 0 : 1;  // the rank that writes decides, and it may be any rank
  if (impl->comm->size() > 1) impl->host_group->all_reduce(&is_in_full, 1, GANNET_MAX);
  impl->store.take_in(*one.range, one.parameter, whole.flatten(), /*is_replaced=*/true, is_in_full > 0);
}

// Returns a gathered parameter that the program wrote although the guard only reads; "" if there is
// none. An inner guard with write_from leaves the parameter at a later version, which the engine
// knows.
std::string GatheredParameters::State::written() const {
  for (const ChosenParameter& one : chosen) {
    if (!one.range) continue;
    const TrainedParameter& parameter = one.range->parameters[one.parameter];
    const uint32_t version = version_of(parameter.tensor);
    if (parameter.resident && version != one.version && version != parameter.left.version) return parameter.name;
  }
  return "";
}

void GatheredParameters::State::end() {
  if (engine.expired()) {
    is_over = true;
    return;
  }
  if (write_from) impl->guards.writing.erase(std::find(impl->guards.writing.begin(), impl->guards.writing.end(), name));
  for (const size_t resident : residents) impl->store.residency()->set_writable(resident, false);
  if (!residents.empty()) impl->store.residency()->release(residents);
  is_over = true;
}

GatheredParameters::GatheredParameters(EngineBase& engine, std::vector<at::Tensor> parameters, Options options) try
    : state_(std::make_unique<State>()) {
  const Entered entered(engine.impl(), Call::kGatheredParameters);
  if (options.write_from) gate::require(engine.impl(), Call::kGatheredParametersToWrite);
  state_->impl = &engine.impl();
  state_->engine = state_->impl->self;
  state_->write_from = options.write_from;
  if (state_->impl->reducer && state_->impl->progress.is_whole()) state_->impl->audit();
  state_->find(parameters);
  if (options.write_from && state_->impl->reducer)
    for (const State::ChosenParameter& one : state_->chosen)
      if (one.range)
        refuse_write(*state_->impl, "zero::GatheredParameters with write_from", one.range->group,
                     one.range->parameters[one.parameter].name);
  auto call =
      state_->impl->process_group->world()->enter(*state_->impl->world_group, "GatheredParameters",
                                                  state_->impl->progress.global_steps + 1, "", control::Watch::Call::kAtOnce);
  state_->agree();
  if (!state_->residents.empty()) state_->impl->store.residency()->hold(state_->residents);
  for (State::ChosenParameter& one : state_->chosen) {
    one.version = version_of(one.tensor);
    one.storage = storage_of(one.tensor);
  }
  if (!options.write_from) return;
  for (const size_t resident : state_->residents) state_->impl->store.residency()->set_writable(resident, true);
  if (!state_->chosen.empty()) state_->name = state_->chosen[0].name();
  state_->impl->guards.writing.push_back(state_->name);
} catch (...) {
  rethrow_as_ours("zero::GatheredParameters");
}

void GatheredParameters::publish() try {
  if (state_->is_over) return;
  if (state_->engine.expired()) {
    state_->is_over = true;
    throw Error(ErrorCode::kOrder, "a zero::GatheredParameters guard ended after its engine: what was written under it is lost",
                "end the guard first");
  }
  at::NoGradGuard no_grad;
  bool has_new_memory = false;
  if (state_->write_from) {
    auto call = state_->impl->process_group->world()->enter(*state_->impl->world_group, "GatheredParameters",
                                                            state_->impl->progress.global_steps + 1, "publish",
                                                            control::Watch::Call::kAtOnce);
    const std::vector<size_t> anywhere = state_->replaced_anywhere();
    std::vector<const TrainedParameter*> replaced;
    for (const auto& one : state_->chosen)
      if (one.is_trained && state_->is_replaced(one)) replaced.push_back(&one.range->parameters[one.parameter]);
    if (state_->impl->reducer) state_->impl->module_audit->prepare(replaced);
    for (size_t i = 0; i < state_->chosen.size(); ++i)
      state_->publish(state_->chosen[i], std::find(anywhere.begin(), anywhere.end(), i) != anywhere.end());
    has_new_memory = !anywhere.empty();
    if (state_->impl->reducer) {
      state_->impl->module_audit->reclaim();
      state_->impl->module_audit->record();
    }
  }
  const std::string written = state_->write_from ? "" : state_->written();
  state_->end();
  if (!written.empty() || has_new_memory) state_->impl->store.forget_gathered();
  if (written.empty()) return;
  if (state_->impl->reducer) state_->impl->module_audit->record();
  throw Error(ErrorCode::kOrder,
              formatted("parameter '{}' was written under a zero::GatheredParameters guard without write_from: the values went "
                        "with the guard, and the engine has those from before",
                        written),
              "give the rank whose values are to stay: GatheredParameters(engine, parameters, {.write_from = 0})");
} catch (...) {
  rethrow_as_ours("zero::GatheredParameters::publish");
}

GatheredParameters::~GatheredParameters() {
  if (!state_ || state_->is_over) return;
  try {
    if (std::uncaught_exceptions() > state_->exceptions)
      state_->end();
    else
      publish();
  } catch (const std::exception& error) {
    log(LogLevel::kError, std::string("the end of a zero::GatheredParameters guard failed: ") + error.what());
    if (!state_->is_over) state_->end();
    if (state_->engine.expired()) return;
    const auto* const own = dynamic_cast<const Error*>(&error);
    const std::optional<Error> named = own ? std::optional<Error>(*own) : error_of(error);
    state_->impl->guards.failed = named.value_or(
        Error(ErrorCode::kInternal, std::string("the end of a zero::GatheredParameters guard failed: ") + error.what()));
  }
}

}  // namespace zero
}  // namespace gannet
