#include "update/updater.h"

#include <ATen/core/grad_mode.h>
#include <gannet/error.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "interfaces/seeds.h"
#include "params/pieces.h"
#include "tensor/dtype.h"
#include "update/argument_views.h"
#include "update/group_collectives.h"
#include "update/group_states.h"
#include "update/pages.h"
#include "update/piece_arrays.h"
#include "update/piece_list.h"

namespace gannet {
namespace {

// [parameters] how many updates each has missed, kSkipped where it misses this one; empty when none ever did.
std::vector<int64_t> lags_of(const Range& range, const Reducer& reducer) {
  std::vector<int64_t> lags;
  bool is_needed = false;
  lags.reserve(range.parameters.size());
  for (size_t p = 0; p < range.parameters.size(); ++p) {
    lags.push_back(is_skipped(range, p, reducer) ? kSkipped : range.parameters[p].lag);
    is_needed = is_needed || lags.back() != 0;
  }
  return is_needed ? lags : std::vector<int64_t>();
}

// Of gradients that the group's optimizer averages itself: nothing has summed them.
double scale_for(const Group& group, double grad_scale, const Reducer& reducer) {
  return group.has_own_gradients ? grad_scale * (reducer.own_factor() / reducer.mean_factor()) : grad_scale;
}

}  // namespace

void Updater::update(double grad_scale, int64_t applied_steps, const Reducer& reducer) {
  Timers::Scope timed(context_.timers, Timed::kUpdate);
  store_.forget_gathered();
  std::vector<Sums> sums;
  for (Group& group : groups_) sums.emplace_back(*group.optimizer);
  step_groups(&Optimizer::begin_step, grad_scale, applied_steps, reducer, sums);
  add_up(sums, GANNET_PASS_UPDATE, grad_scale, applied_steps, reducer);
  if (average_.is_on()) average_.begin(applied_steps + 1);
  for (auto& range : store_.ranges()) work_on(range, grad_scale, applied_steps, reducer, sums[range.group], {});
  step_groups(&Optimizer::end_step, grad_scale, applied_steps, reducer, sums);
}

void Updater::perturb(double grad_scale, int64_t applied_steps, const Reducer& reducer) {
  Timers::Scope timed(context_.timers, Timed::kUpdate);
  store_.forget_gathered();
  std::vector<Sums> sums;
  for (Group& group : groups_) sums.emplace_back(*group.optimizer, GANNET_PASS_PERTURB);
  add_up(sums, GANNET_PASS_PERTURB, grad_scale, applied_steps, reducer);
  for (auto& range : store_.ranges())
    if (groups_[range.group].optimizer->perturbs())
      work_on(range, grad_scale, applied_steps, reducer, sums[range.group], {GANNET_PASS_PERTURB});
}

// The sums of a pass, round by round, over all ranks.
void Updater::add_up(std::vector<Sums>& sums, gannet_pass pass, double grad_scale, int64_t applied_steps,
                     const Reducer& reducer) {
  uint32_t rounds = 0;
  for (const Sums& group : sums) rounds = std::max(rounds, group.rounds());
  for (uint32_t round = 0; round < rounds; ++round) {
    for (auto& range : store_.ranges()) work_on(range, grad_scale, applied_steps, reducer, sums[range.group], {pass, round});
    complete_sums(sums, round, context_, store_);
  }
}

// From the masters to where the optimizer takes the gradient of the second pass: from those that are kept into their place, which
// takes no third copy. What lies between the tensors stays.
void Updater::perturb_piece(Optimizer& optimizer, Range& range, const Piece& piece, gannet_update_args args) {
  const at::Device device = context_.update_device();
  const at::Tensor masters = view_of(args, args.param, args.param_dtype, device);
  std::optional<at::Tensor> copy;
  if (args.out) copy = view_of(args, args.out, args.out_dtype, device);
  perturbation_.keep(range, piece.place, masters);
  at::Tensor before = perturbation_.kept(range, piece.place);
  if (!before.defined() || before.device() != device) before = masters.clone();  // a page
  args.out = std::exchange(args.param, before.data_ptr());
  args.out_dtype = args.param_dtype;
  optimizer.perturb(args);
  if (copy) copy->copy_(masters);
}

// begin_step or end_step of every group, in which the host's collectives are open.
void Updater::step_groups(void (Optimizer::*function)(gannet_step_args), double grad_scale, int64_t applied_steps,
                          const Reducer& reducer, std::vector<Sums>& sums) {
  GroupCollectives collectives(context_);
  const Host::Open open(context_.host, collectives);
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    std::vector<void*> states;
    for (const at::Tensor& state : group.own_states) states.push_back(state.defined() ? state.data_ptr() : nullptr);
    gannet_step_args args{};
    args.group = static_cast<uint32_t>(g);
    args.step = static_cast<uint64_t>(applied_steps - group.lag) + 1;
    args.grad_scale = scale_for(group, grad_scale, reducer);
    args.hyper = group.hyper.data();
    args.hyper_count = group.hyper.size();
    args.states = states.data();
    args.state_count = states.size();
    if (function == &Optimizer::end_step) {
      args.sums = sums[g].data();
      args.lines = sums[g].lines();
    }
    args.sum_count = sums[g].width();
    args.stream = context_.updates_on_host() ? nullptr : context_.current_stream();
    args.seed = seed_of(*group.optimizer, applied_steps);
    args.workspace_bytes = group.optimizer->workspace_bytes(0);
    args.workspace = step_workspace_.of(args.workspace_bytes, at::kCPU, group.optimizer->plugin());
    try {
      (group.optimizer.get()->*function)(args);
    } catch (const Error&) {
      collectives.rethrow();
      throw;
    }
  }
}

uint64_t Updater::seed_of(const Optimizer& optimizer, int64_t applied_steps) const {
  return optimizer.uses_seed() ? step_seed(static_cast<uint64_t>(run_seed), applied_steps) : 0;
}

// Elements that a piece has at most.
int64_t Updater::largest_page(const Range& range) const {
  int64_t begin = 0, largest = 0;
  for (const int64_t end : page_ends(range, store_.page_numel())) {
    largest = std::max(largest, end - begin);
    begin = end;
  }
  return largest;
}

HostUpdate& Updater::host_update(const Range& range) {
  const auto& ranges = store_.ranges();
  host_updates_.resize(ranges.size());
  const auto place = std::find_if(ranges.begin(), ranges.end(), [&](const Range& each) { return &each == &range; });
  auto& one = host_updates_[static_cast<size_t>(place - ranges.begin())];
  if (!one)
    one = std::make_unique<HostUpdate>(
        *context_.accelerator,
        HostUpdate::Options{.numel = largest_page(range),
                            .grad_dtype = gradients_on_host_ ? std::nullopt : std::optional(range.grad_dtype),
                            .param_dtype = range.dtype,
                            .reads_param = !range.has_master_copy(),
                            .device = context_.device_index()});
  return *one;
}

void Updater::work_on(Range& range, double grad_scale, int64_t applied_steps, const Reducer& reducer, Sums& sums, Work work) {
  Group& group = groups_[range.group];
  Optimizer& optimizer = *group.optimizer;
  const size_t width = sums.width();
  if (work.round && !sums.has_round(*work.round)) return;
  const bool is_update = work.pass == GANNET_PASS_UPDATE;
  const bool averages = is_update && !work.round && average_.is_on();
  const PieceArrays arrays(range, optimizer, is_update && !work.round ? second_gradient_.of(range) : nullptr, averages);
  std::vector<Piece> pieces = pieces_of(range, arrays.is_paged() || context_.updates_on_host() ? store_.page_numel() : kNoPages);
  if (optimizer.owns_grad_reduction()) {  // whole buckets, with one number of updates
    for (Piece& piece : pieces) piece.lag = group.lag;
  } else if (const auto lags = lags_of(range, reducer); !lags.empty()) {
    pieces = cut_by_lag(std::move(pieces), range, lags);
    if (averages)  // of those that keep their values in this update it moves too
      average_.move_parameters(range, [&](size_t parameter) { return lags[parameter] == kSkipped; });
  }
  grad_scale = scale_for(group, grad_scale, reducer);
  HostUpdate* const host = context_.updates_on_host() ? &host_update(range) : nullptr;
  const bool param_on_device = range.placement == Placement::kDevice;
  const auto fetch = [&](size_t i) {
    if (host && i < pieces.size())
      host->fetch(i, gradients_on_host_ ? at::Tensor() : pieces[i].grad,
                  param_on_device ? range.param_of(pieces[i].place) : at::Tensor(), context_.current_stream());
  };
  const auto arguments = [&](const Pages& pages, size_t i, PieceCall& call, void* workspace) {
    const Piece& piece = pieces[i];
    gannet_update_args args{};
    args.struct_size = sizeof(args);
    args.param_dtype = to_dtype(range.master_dtype);
    args.grad_dtype = to_dtype(range.grad_dtype);
    args.out_dtype = range.has_master_copy() ? to_dtype(range.dtype) : GANNET_DTYPE_NONE;
    args.numel = static_cast<uint64_t>(piece.place.numel);
    args.param = arrays.master(pages, piece);
    args.grad = piece.grad.const_data_ptr();
    args.out = arrays.out(pages, piece);
    if (host) {
      host->wait(i);
      if (!gradients_on_host_) args.grad = host->grad(i);
      if (param_on_device) (range.has_master_copy() ? args.out : args.param) = host->param(i);
    }
    arrays.states(pages, piece, group, call.states);
    args.states = call.states.data();
    args.state_count = call.states.size();
    args.grad_scale = grad_scale;
    args.step = static_cast<uint64_t>(applied_steps - piece.lag) + 1;
    args.hyper = group.hyper.data();
    args.hyper_count = group.hyper.size();
    args.segments = piece.segments;
    args.segment_count = piece.segment_count;
    args.segment_stride = sizeof(Segment);
    call.rows.clear();
    for (size_t k = 0; width > 0 && k < piece.segment_count; ++k) {
      const double* row = sums.row(piece.segments[k].tensor_index);
      call.rows.insert(call.rows.end(), row, row + width);
    }
    args.sums = width > 0 ? call.rows.data() : nullptr;
    args.sum_count = width;
    args.lines = sums.lines();
    args.group = static_cast<uint32_t>(range.group);
    args.device = host ? 0 : context_.device_index();
    args.stream = host ? nullptr : context_.current_stream();
    args.seed = seed_of(optimizer, applied_steps);
    args.workspace_bytes = optimizer.workspace_bytes(args.numel);
    args.workspace = args.workspace_bytes > 0 ? workspace : nullptr;
    squares_of(group, piece.segments, piece.segment_count, call.squares);
    args.squares = call.squares.empty() ? nullptr : call.squares.data();
    args.second_grad = arrays.second_gradient(pages, piece);
    args.pass = work.pass;
    if (args.step == 1) copy_first_values(optimizer, args, context_.update_device());
    if (optimizer.takes_device_numbers()) numbers_.give(args, piece.lag, context_.update_device());
    return args;
  };
  // While the piece's page is here.
  const auto average = [&](const Pages& pages, size_t i, const gannet_update_args& args) {
    if (!averages) return;
    const at::Device device = context_.update_device();
    average_.move(view_of(args, arrays.average(pages, pieces[i]), args.param_dtype, device),
                  view_of(args, args.param, args.param_dtype, device));
  };
  bool host_is_done = false;
  std::function<void(size_t)> send;
  size_t published = 0;  // shards, in their order: a rank may have nothing to update in one of them
  const auto publish_to = [&](size_t end) {
    for (; published < end; ++published) store_.publish_shard(range, published);
  };
  // Each piece while its page is here.
  const auto for_each = [&](bool writes, const std::function<void(size_t, const gannet_update_args&)>& body) {
    Pages pages(arrays.uses(), range.own_numel,
                {page_ends(range, store_.page_numel()), store_.page_numel(),
                 static_cast<size_t>(std::clamp<int64_t>(context_.settings().zero.offload_optimizer.buffer_count, 2, 16))},
                spare_pages_, context_.timers);
    size_t i = 0;
    PieceCall call;
    fetch(0);
    for (size_t page = 0; page < pages.count(); ++page) {
      pages.open(page);
      for (; i < pieces.size() && pieces[i].place.own < pages.end(page); ++i) {
        fetch(i + 1);
        void* const workspace = piece_workspace_.of(optimizer.workspace_bytes(static_cast<uint64_t>(pieces[i].place.numel)),
                                                    context_.update_device(), optimizer.plugin());
        const gannet_update_args args = arguments(pages, i, call, workspace);
        body(i, args);
        average(pages, i, args);
        if (host && writes) host->give_back(i);
      }
      pages.close(page);
    }
    pages.finish();
    if (host) host->finish();
    host_is_done = host && writes;
    if (host_is_done)
      for (size_t k = 0; k < pieces.size(); ++k) send(k);
    if (writes) publish_to(range.shards.size());
  };
  // A shard goes out while the next one is updated; from a host, when all are on the device.
  send = [&](size_t i) {
    if (host && !host_is_done) return;
    const bool is_last = i + 1 == pieces.size() || pieces[i + 1].sub_group != pieces[i].sub_group;
    if (is_last) publish_to(pieces[i].sub_group + 1);
  };

  // Many pieces in a call: all are in memory, and each has its own part of the workspace.
  const bool has_lists = optimizer.takes_lists() && !arrays.is_paged() && !host;
  const auto for_lists = [&](bool writes, const std::function<void(size_t, const std::vector<gannet_update_args>&)>& body) {
    const Pages no_pages({}, 0, {}, spare_pages_, context_.timers);
    std::vector<PieceCall> calls;
    std::vector<gannet_update_args> list;
    const auto workspace_of = [&](const Piece& piece) { return workspace_part(optimizer, piece.place.numel); };
    for (const ListStretch& each : lists_of(pieces, workspace_of, writes && ParameterStore::publishes_shards(range))) {
      list.clear();
      calls.resize(std::max(calls.size(), each.end - each.begin));
      auto* workspace =
          static_cast<char*>(piece_workspace_.of(each.workspace_bytes, context_.update_device(), optimizer.plugin()));
      for (size_t i = each.begin; i < each.end; ++i) {
        list.push_back(arguments(no_pages, i, calls[i - each.begin], workspace));
        workspace += workspace_of(pieces[i]);
      }
      body(each.begin, list);
      for (size_t i = each.begin; i < each.end; ++i) average(no_pages, i, list[i - each.begin]);
      if (writes) send(each.end - 1);
    }
    if (writes) publish_to(range.shards.size());
  };

  if (!work.round && !is_update)
    return for_each(true, [&](size_t i, const gannet_update_args& args) {
      perturb_piece(optimizer, range, pieces[i], args);
      send(i);
    });
  if (!work.round && has_lists)
    return for_lists(true, [&](size_t, const std::vector<gannet_update_args>& list) { optimizer.update_many(list); });
  if (!work.round) {
    GroupCollectives collectives(context_);
    std::optional<Host::Open> open;
    if (optimizer.reduction(static_cast<uint64_t>(applied_steps - group.lag) + 1) == GANNET_REDUCED_BY_UPDATE)
      open.emplace(context_.host, collectives);
    for_each(true, [&](size_t i, const gannet_update_args& args) {
      try {
        optimizer.update(args);
      } catch (const Error&) {
        collectives.rethrow();
        throw;
      }
      send(i);
    });
    return;
  }
  const auto add = [&](const Piece& piece, const std::vector<double>& parts) {
    for (size_t k = 0; k < piece.segment_count; ++k)
      sums.add(piece.segments[k].tensor_index, *work.round, parts.data() + k * width);
  };
  if (has_lists)
    return for_lists(false, [&](size_t begin, const std::vector<gannet_update_args>& list) {
      std::vector<std::vector<double>> parts;
      for (const gannet_update_args& args : list) parts.push_back(sums.of_nothing(args.segment_count));
      std::vector<double*> places;
      for (auto& each : parts) places.push_back(each.data());
      optimizer.sums_many(list, *work.round, places.data());
      for (size_t i = 0; i < list.size(); ++i) add(pieces[begin + i], parts[i]);
    });
  for_each(false, [&](size_t i, const gannet_update_args& args) {
    std::vector<double> parts = sums.of_nothing(args.segment_count);
    optimizer.sums(args, *work.round, parts.data());
    add(pieces[i], parts);
  });
}

}  // namespace gannet
