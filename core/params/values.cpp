// Reads and writes the values of one parameter, found by name or position: its master, gradient and
// states, in full or only this rank's part, on any tier.
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <gannet/error.h>

#include "base/format.h"
#include "base/text.h"
#include "params/store.h"
#include "tensor/dtype.h"
#include "tensor/move_leaf.h"

namespace gannet {
namespace {

zero::Shard place_of(const zero::TensorPart& part) { return {part.offset, part.own, part.numel}; }

}  // namespace

zero::TensorPart ParameterStore::FoundParameter::part() const {
  for (const auto& part : range->parts)
    if (part.tensor == parameter) return part;
  return {};
}

ParameterStore::FoundParameter ParameterStore::find(const std::string& name) {
  std::vector<std::string> names;
  for (auto& range : ranges_)
    for (size_t p = 0; p < range.parameters.size(); ++p) {
      if (range.parameters[p].name == name) return {&range, p};
      names.push_back(range.parameters[p].name);
    }
  throw Error(ErrorCode::kNotFound, formatted("no trained parameter is called '{}'{}", name, did_you_mean(name, names)),
              "engine->parameter_names() lists them");
}

std::vector<std::string> ParameterStore::names() const {
  std::vector<std::string> names;
  for (const auto& range : ranges_)
    for (const auto& parameter : range.parameters) names.push_back(parameter.name);
  return names;
}

at::Tensor ParameterStore::shard_master(const FoundParameter& found) const {
  return found.range->master_of(place_of(found.part()));
}

at::Tensor ParameterStore::shard_gradient(const FoundParameter& found) const {
  zero::TensorPart part = found.part();
  part.tensor = found.parameter;  // this rank may have no part of it
  return found.range->grad_of(part);
}

at::Tensor ParameterStore::shard_state(const FoundParameter& found, size_t state) const {
  const auto part = found.part();
  return found.range->states[state].get(part.own, part.numel);
}

// A rank without elements contributes zeros. The sum is over bytes, so the result is exact.
at::Tensor ParameterStore::gather(const FoundParameter& found, const at::Tensor& own) const {
  if (!found.range->is_sharded())
    return Range::shaped(own.to(context_.device, /*non_blocking=*/false, /*copy=*/true), found.get());
  const auto part = found.part();
  at::Tensor whole = at::zeros({found.get().numel}, own.options().device(context_.device));
  if (part.numel > 0) whole.narrow(0, part.begin, part.numel).copy_(own);
  found.range->ranks.comm->all_reduce(whole.view(at::kByte)).wait();
  return Range::shaped(whole, found.get());
}

void ParameterStore::set_master(const FoundParameter& found, const at::Tensor& flat) {
  Range& range = *found.range;
  const auto part = found.part();
  if (!range.has_displaced.empty()) range.has_displaced[found.parameter] = 0;
  if (part.numel > 0) {
    range.set_master(place_of(part), flat.narrow(0, part.begin, part.numel));
    if (range.is_gathered_on_demand_ && range.has_master_copy())
      range.set_param(place_of(part), flat.narrow(0, part.begin, part.numel));
  }
  forget_gathered();
  if (range.is_gathered_on_demand_)
    all_gather_persistent(range);
  else
    range.set_param({found.get().offset, found.get().offset, found.get().numel}, flat);
}

void ParameterStore::set_gradient(const FoundParameter& found, const at::Tensor& flat) {
  const auto part = found.part();
  if (!found.range->is_sharded())
    found.get().held.flatten().copy_(flat);
  else if (part.numel > 0)
    found.range->grad_of(place_of(part)).copy_(flat.narrow(0, part.begin, part.numel));
}

void ParameterStore::set_state(const FoundParameter& found, size_t state, const at::Tensor& flat) {
  const auto part = found.part();
  if (part.numel > 0) found.range->states[state].set(part.own, flat.narrow(0, part.begin, part.numel));
}

// Elements whose 16-bit value equals the rounding of their master were not written, and keep the
// master's precision. Elements that equal the rounding of a master displaced by an earlier write
// get that master back.
at::Tensor ParameterStore::masters_after_write(const Range& range, size_t parameter, const zero::Shard& shard,
                                               const at::Tensor& written) const {
  const at::Tensor wide = written.to(range.master_dtype);
  const auto with_digits_of = [&](const at::Tensor& values, const at::Tensor& otherwise) {
    const at::Tensor masters = values.to(wide.device());
    return at::where(wide.eq(masters.to(range.dtype).to(range.master_dtype)), masters, otherwise);
  };
  const bool has_displaced = !range.has_displaced.empty() && range.has_displaced[parameter];
  return with_digits_of(range.master_of(shard),
                        has_displaced ? with_digits_of(range.displaced.get(shard.own, shard.numel), wide) : wide);
}

void ParameterStore::forget_displaced() {
  for (Range& range : ranges_) {
    range.displaced = Array();
    range.has_displaced.clear();
  }
}

void ParameterStore::write_masters(Range& range, size_t parameter, const zero::TensorPart& part, const at::Tensor& mine) {
  const at::Tensor masters = range.master_of(place_of(part)), after = masters_after_write(range, parameter, place_of(part), mine);
  if (at::equal(masters.to(after.device()), after)) return;
  if (range.has_displaced.empty()) {
    range.displaced = make_like_masters(range, "masters that a write displaced");
    range.has_displaced.resize(range.parameters.size());
  }
  if (!std::exchange(range.has_displaced[parameter], 1)) range.displaced.set(part.own, masters);
  range.set_master(place_of(part), after);
}

void ParameterStore::keep_written(Range& range, size_t parameter, const at::Tensor& flat) {
  for (const zero::TensorPart& part : range.parts) {
    if (part.tensor != parameter) continue;
    const at::Tensor mine = flat.narrow(0, part.begin, part.numel);
    if (range.is_gathered_on_demand_) range.set_param(place_of(part), mine);
    if (range.has_master_copy()) write_masters(range, parameter, part, mine);
  }
}

void ParameterStore::take_in(Range& range, size_t p, const at::Tensor& flat, bool is_replaced, bool is_in_full) {
  TrainedParameter& parameter = range.parameters[p];
  for (const zero::TensorPart& part : range.parts) {
    if (part.tensor != p) continue;
    const at::Tensor mine = flat.narrow(0, part.begin, part.numel);
    if (range.has_master_copy()) {
      if (is_in_full) {
        range.set_master(place_of(part), mine);
        if (!range.has_displaced.empty()) range.has_displaced[p] = 0;
      } else {
        write_masters(range, p, part, mine);
      }
    }
    if (range.is_gathered_on_demand_) range.set_param(place_of(part), mine.to(range.dtype));
  }
  if (parameter.persistent.defined()) {
    parameter.persistent.narrow(0, 0, parameter.numel).copy_(flat);
  } else if (!parameter.resident && (is_replaced || range.has_master_copy())) {
    range.param.here().narrow(0, parameter.offset, parameter.numel).copy_(flat);
  }
}

void ParameterStore::restore_memory(Range& range, size_t p) {
  TrainedParameter& parameter = range.parameters[p];
  if (parameter.resident)
    move_leaf(parameter.tensor, residency_->tensor(*parameter.resident));
  else
    move_leaf(parameter.tensor,
              Range::shaped(parameter.persistent.defined() ? parameter.persistent
                                                           : range.param.here().narrow(0, parameter.offset, parameter.numel),
                            parameter));
}

at::Tensor ParameterStore::whole_value(const TrainedParameter& parameter, bool keeps) const {
  if (!parameter.resident) return parameter.tensor.detach();
  residency_->hold({*parameter.resident});
  at::Tensor copy = keeps ? parameter.tensor.detach().clone() : at::Tensor();
  residency_->release({*parameter.resident});
  return copy;
}

ParameterStore::NamedParameters ParameterStore::whole_masters(const std::function<void()>& before_gathering) const {
  NamedParameters values;
  bool has_begun = false;
  for (const auto& range : ranges_) {
    if (!range.is_sharded() || !(range.has_master_copy() || range.shards_parameters())) {
      for (const auto& parameter : range.parameters)
        values.emplace_back(parameter.name, Range::shaped(range.whole_master(parameter).flatten(), parameter));
      continue;
    }
    if (!std::exchange(has_begun, true)) before_gathering();
    at::Tensor whole = at::empty({range.numel}, at::TensorOptions().dtype(range.master_dtype).device(context_.device));
    for (size_t b = 0; b < range.shards.size(); ++b) {
      const auto& bucket = range.layout.buckets[b];
      const at::Tensor mine = range.master_of(range.shards[b]).to(context_.device);
      range.ranks.comm->all_gather(mine, whole.narrow(0, bucket.offset, bucket.numel)).block();
    }
    for (const auto& parameter : range.parameters)
      values.emplace_back(parameter.name, Range::shaped(whole.narrow(0, parameter.offset, parameter.numel), parameter));
  }
  return values;
}

}  // namespace gannet
