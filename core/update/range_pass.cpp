#include "update/range_pass.h"

#include <algorithm>
#include <utility>

#include "tensor/dtype.h"
#include "update/argument_views.h"
#include "update/group_states.h"
#include "update/pages.h"

namespace gannet {
namespace {

std::vector<Piece> pieces_to_work_on(const Range& range, const Group& group, int64_t page_numel,
                                     const std::vector<int64_t>& lags) {
  std::vector<Piece> pieces = pieces_of(range, page_numel);
  if (group.optimizer->owns_grad_reduction()) {  // the optimizer gets whole buckets, all with the same number of updates
    for (Piece& piece : pieces) piece.lag = group.lag;
    return pieces;
  }
  if (lags.empty()) return pieces;
  return cut_by_lag(std::move(pieces), range, lags);
}

}  // namespace

RangePass::RangePass(RankContext& context, ParameterStore& store, Range& range, Group& group, Sums& sums,
                     const std::vector<int64_t>& lags, HostUpdate* host, const Options& options, PassMemory& memory)
    : context_(context),
      store_(store),
      range_(range),
      group_(group),
      optimizer_(*group.optimizer),
      sums_(sums),
      options_(options),
      memory_(memory),
      arrays_(range, *group.optimizer, options.second_gradient, options.average != nullptr),
      pieces_(pieces_to_work_on(range, group, arrays_.is_paged() || host ? store.page_numel() : kNoPages, lags)),
      transfers_(host, range, pieces_, options.gradients_on_host, context.current_stream()),
      sender_(store, range, pieces_, /*waits_for_all=*/host != nullptr) {}

Pages::Options RangePass::page_options() const {
  const int64_t in_flight = std::clamp<int64_t>(context_.settings().zero.offload_optimizer.buffer_count, 2, 16);
  return {page_ends(range_, store_.page_numel()), store_.page_numel(), static_cast<size_t>(in_flight)};
}

gannet_update_args RangePass::arguments(const Pages& pages, size_t index, PieceCall& call, void* workspace) {
  const Piece& piece = pieces_[index];
  const bool on_host = transfers_.is_to_host();
  gannet_update_args args{};
  args.struct_size = sizeof(args);
  args.param_dtype = to_dtype(range_.master_dtype);
  args.grad_dtype = to_dtype(range_.grad_dtype);
  args.out_dtype = range_.has_master_copy() ? to_dtype(range_.dtype) : GANNET_DTYPE_NONE;
  args.numel = static_cast<uint64_t>(piece.place.numel);
  args.param = arrays_.master(pages, piece);
  args.grad = piece.grad.const_data_ptr();
  args.out = arrays_.out(pages, piece);
  transfers_.use(index, args);
  arrays_.states(pages, piece, group_, call.states);
  args.states = call.states.data();
  args.state_count = call.states.size();
  args.grad_scale = options_.grad_scale;
  args.step = static_cast<uint64_t>(options_.applied_steps - piece.lag) + 1;
  args.hyper = group_.hyper.data();
  args.hyper_count = group_.hyper.size();
  args.segments = piece.segments;
  args.segment_count = piece.segment_count;
  args.segment_stride = sizeof(Segment);
  set_sums(piece, call, args);
  args.group = static_cast<uint32_t>(range_.group);
  args.device = on_host ? 0 : context_.device_index();
  args.stream = on_host ? nullptr : context_.current_stream();
  args.seed = options_.seed;
  args.loss = options_.pass == GANNET_PASS_UPDATE ? options_.loss : std::numeric_limits<double>::quiet_NaN();
  args.total_steps = static_cast<uint64_t>(context_.settings().total_steps);
  args.workspace_bytes = optimizer_.workspace_bytes(args.numel);
  args.workspace = args.workspace_bytes > 0 ? workspace : nullptr;
  squares_of(group_, piece.segments, piece.segment_count, call.squares);
  args.squares = call.squares.empty() ? nullptr : call.squares.data();
  args.second_grad = arrays_.second_gradient(pages, piece);
  args.pass = options_.pass;
  if (args.step == 1) copy_first_values(optimizer_, args, context_.update_device());
  if (optimizer_.takes_device_numbers()) memory_.numbers.give(args, piece.lag, context_.update_device());
  return args;
}

// Passes the current sums of the piece's tensors, one row per segment.
void RangePass::set_sums(const Piece& piece, PieceCall& call, gannet_update_args& args) {
  const size_t width = sums_.width();
  call.rows.clear();
  for (size_t k = 0; width > 0 && k < piece.segment_count; ++k) {
    const double* row = sums_.row(piece.segments[k].tensor_index);
    call.rows.insert(call.rows.end(), row, row + width);
  }
  args.sums = width > 0 ? call.rows.data() : nullptr;
  args.sum_count = width;
  args.lines = sums_.lines();
}

void RangePass::move_average(const Pages& pages, size_t index, const gannet_update_args& args) const {
  if (!options_.average) return;
  const at::Device device = context_.update_device();
  options_.average->move(view_of(args, arrays_.average(pages, pieces_[index]), args.param_dtype, device),
                         view_of(args, args.param, args.param_dtype, device));
}

void RangePass::for_each(const std::function<void(size_t, const gannet_update_args&)>& body) {
  Pages pages(arrays_.uses(), range_.shard_numel, page_options(), memory_.spare_pages, context_.timers);
  PieceCall call;
  size_t i = 0;
  transfers_.fetch(0);
  for (size_t page = 0; page < pages.count(); ++page) {
    pages.open(page);
    for (; i < pieces_.size() && pieces_[i].place.own < pages.end(page); ++i) {
      transfers_.fetch(i + 1);
      const uint64_t workspace_bytes = optimizer_.workspace_bytes(static_cast<uint64_t>(pieces_[i].place.numel));
      void* const workspace = memory_.workspace.of(workspace_bytes, context_.update_device(), optimizer_.plugin());
      const gannet_update_args args = arguments(pages, i, call, workspace);
      body(i, args);
      if (options_.writes) sender_.piece_is_done(i);
      move_average(pages, i, args);
      if (options_.writes) transfers_.give_back(i);
    }
    pages.close(page);
  }
  pages.finish();
  transfers_.finish();
  if (options_.writes) sender_.all_are_done();
}

// Each piece has its own part of the workspace.
void RangePass::for_lists(const std::function<void(size_t, const std::vector<gannet_update_args>&)>& body) {
  const Pages no_pages({}, 0, {}, memory_.spare_pages, context_.timers);
  std::vector<PieceCall> calls;
  std::vector<gannet_update_args> list;
  const auto workspace_of = [&](const Piece& piece) { return workspace_part(optimizer_, piece.place.numel); };
  const bool by_shard = options_.writes && ParameterStore::publishes_shards(range_);
  for (const ListStretch& each : lists_of(pieces_, workspace_of, by_shard)) {
    list.clear();
    calls.resize(std::max(calls.size(), each.end - each.begin));
    auto* workspace =
        static_cast<char*>(memory_.workspace.of(each.workspace_bytes, context_.update_device(), optimizer_.plugin()));
    for (size_t i = each.begin; i < each.end; ++i) {
      list.push_back(arguments(no_pages, i, calls[i - each.begin], workspace));
      workspace += workspace_of(pieces_[i]);
    }
    body(each.begin, list);
    for (size_t i = each.begin; i < each.end; ++i) move_average(no_pages, i, list[i - each.begin]);
    if (options_.writes) sender_.piece_is_done(each.end - 1);
  }
  if (options_.writes) sender_.all_are_done();
}

}  // namespace gannet
