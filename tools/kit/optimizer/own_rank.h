// One rank of a simulated run at stage 0 with an optimizer that averages gradients itself: the rank
// has all buckets and, in the steps that the plugin chooses, unreduced gradients. Mirrors
// core/params/place.cpp and core/update/updater.cpp for such a group.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/format.h"
#include "interfaces/seeds.h"
#include "kit/numbers.h"
#include "kit/object.h"
#include "kit/optimizer/engine.h"
#include "kit/optimizer/extents.h"
#include "kit/optimizer/piece_memory.h"
#include "kit/optimizer/work_memory.h"
#include "kit/place.h"
#include "kit/ranks.h"
#include "params/layout.h"

namespace gannet::kit {

// A rank's results after a run, byte for byte.
struct RankResults {
  std::vector<std::vector<Bytes>> buckets;  // [buckets] parameters, copies, then states
  std::vector<std::vector<Bytes>> groups;   // [groups][states] the states that are not per element
  std::vector<Bytes> weights;               // [buckets] the weights to use, if the ranks have different parameters
  bool operator==(const RankResults&) const = default;
};

inline Bytes bytes_in(const Buffer& buffer) { return Bytes(buffer.as<char>(), buffer.as<char>() + buffer.bytes()); }
inline void put_back(const Bytes& bytes, const Buffer& buffer) {
  if (!bytes.empty()) std::memcpy(buffer.data(), bytes.data(), bytes.size());
}

struct OwnReductionRun {
  uint32_t ranks = 2;
  int64_t bucket_numel = 256, steps = 40, applied = 0;
  const std::vector<RankResults>* from = nullptr;  // [ranks] the results from which the run continues
  bool alters_last = false;                        // changes the last rank's gradients
};

class OwnReductionRank {
 public:
  OwnReductionRank(const Subject& subject, const Problem& problem, const OwnReductionRun& run, SimulatedRanks& ranks,
                   uint32_t rank)
      : problem_(problem), run_(run), rank_(rank), collectives_(ranks, rank) {
    host_.set_ranks(rank, run.ranks);
    for (uint32_t r = 0; r < run.ranks; ++r) {
      of_ranks_.push_back(problem);
      of_ranks_.back().seed += 1000 * (r + (run.alters_last && r + 1 == run.ranks ? 50 : 0));
    }
    for (uint32_t g = 0; g < problem.groups(); ++g) {
      auto& group = groups_.emplace_back();
      group.optimizer = std::make_unique<Optimizer>(*subject.plugin, subject.parsed(), host_);
      const auto context = context_of(problem, g, rank, run.ranks);
      group.optimizer->describe(context);
      group.optimizer->require_support(problem.types.param, problem.types.grad, problem.types.out);
      group.tensors = context.tensors.size();
      for (const auto& state : group.optimizer->states())
        group.states.push_back(
            state.is_cut() ? Buffer()
                           : new_state(state, type_of(state, problem.types.param), group.optimizer->group_numel(state), true));
      make_buckets(g);
    }
    if (run.from) restore((*run.from)[rank]);
  }

  void step(int64_t step) {
    std::vector<GroupSums> sums;
    uint32_t rounds = 0;
    for (SimulatedGroup& group : groups_) {
      sums.emplace_back(*group.optimizer, group.tensors);
      if (!group.optimizer->sums().empty()) rounds = std::max(rounds, group.optimizer->sums().back().round + 1);
      group.reduction = group.optimizer->reduction(static_cast<uint64_t>(step));
    }
    for (PieceMemory& bucket : buckets_) fill_gradient(bucket, step);
    edges(&Optimizer::begin_step, step, sums, false);
    SimulatedRanks alone(1);  // a group of one: every rank computes all sums in full by itself
    for (uint32_t round = 0; round < rounds; ++round) {
      for (PieceMemory& bucket : buckets_)
        if (sums[bucket.cut->group].has_round(round)) work(bucket, step, sums[bucket.cut->group], &round);
      complete(sums, round, alone, 0);
    }
    for (PieceMemory& bucket : buckets_) work(bucket, step, sums[bucket.cut->group], nullptr);
    edges(&Optimizer::end_step, step, sums, true);
    last_step_ = step;
  }

  RankResults left() {
    RankResults all;
    for (PieceMemory& bucket : buckets_) {
      all.weights.push_back(are_apart(bucket) ? weights_to_use(bucket) : Bytes());
      auto& of_bucket = all.buckets.emplace_back();
      of_bucket.push_back(bytes_in(bucket.param));
      of_bucket.push_back(bytes_in(bucket.out));
      for (const Buffer& state : bucket.states) of_bucket.push_back(bytes_in(state));
    }
    for (const SimulatedGroup& group : groups_) {
      auto& of_group = all.groups.emplace_back();
      for (const Buffer& state : group.states) of_group.push_back(bytes_in(state));
    }
    return all;
  }
  // Returns the first difference between two ranks, for example "the parameters"; "" if there is
  // none. Per-rank states may differ.
  std::string difference(const RankResults& one, const RankResults& other) const {
    for (size_t b = 0; b < buckets_.size(); ++b) {
      const bool is_apart = are_apart(buckets_[b]);
      if (one.weights[b] != other.weights[b]) return "the weights to use after a local step";
      for (size_t part = 0; part < one.buckets[b].size(); ++part) {
        if (one.buckets[b][part] == other.buckets[b][part] || (part < 2 && is_apart)) continue;
        if (part < 2) return part == 0 ? "the parameters" : "the copies `out`";
        const auto& state = groups_[buckets_[b].cut->group].optimizer->states()[part - 2];
        if (!state.is_of_rank() && !state.is_served() && !(state.is_local() && is_apart))
          return formatted("the state '{}'", state.name);
      }
    }
    for (size_t g = 0; g < groups_.size(); ++g)
      for (size_t s = 0; s < one.groups[g].size(); ++s)
        if (one.groups[g][s] != other.groups[g][s]) return formatted("the state '{}'", groups_[g].optimizer->states()[s].name);
    return "";
  }
  bool is_finite() const {
    for (const PieceMemory& bucket : buckets_)
      for (uint64_t i = 0; i < bucket.cut->numel; ++i)
        if (!std::isfinite(get(bucket.param.data(), i, problem_.types.param))) return false;
    return true;
  }

 private:
  struct SimulatedGroup {
    std::unique_ptr<Optimizer> optimizer;
    size_t tensors = 0;
    std::vector<Buffer> states;
    gannet_gradient_reduction reduction = GANNET_REDUCED_BY_HOST;  // in the current step, or the last one
  };

  // Makes buckets as core/params does for an optimizer that averages: their sizes are multiples of
  // the number of ranks.
  void make_buckets(uint32_t g) {
    const Optimizer& optimizer = *groups_[g].optimizer;
    std::vector<size_t> tensors;
    std::vector<int64_t> numels;
    for (size_t t = 0; t < problem_.tensors.size(); ++t)
      if (problem_.tensors[t].group == g) {
        tensors.push_back(t);
        numels.push_back(static_cast<int64_t>(problem_.tensors[t].numel));
      }
    const auto alignment = std::max<int64_t>(zero::kAlignment, static_cast<int64_t>(optimizer.range_alignment()));
    const zero::Layout layout = zero::lay_out(numels, run_.bucket_numel, run_.ranks, alignment);
    for (const zero::Bucket& cut : layout.buckets) {
      CutPiece& piece = cuts_.emplace_back(CutPiece{g, static_cast<uint64_t>(cut.numel), {}});
      for (size_t k = cut.first; k < cut.last; ++k)
        piece.parts.push_back(
            {tensors[k], 0, problem_.tensors[tensors[k]].numel, static_cast<uint64_t>(layout.offsets[k] - cut.offset)});
      PieceMemory& bucket = buckets_.emplace_back(problem_, piece, optimizer, true);
      for (size_t s = 0; s < bucket.states.size(); ++s)
        if (const auto& state = optimizer.states()[s]; state.is_served())
          bucket.states[s] = new_state(state, type_of(state, problem_.types.param), piece.numel / run_.ranks, true);
    }
  }

  void restore(const RankResults& from) {
    for (size_t b = 0; b < buckets_.size(); ++b) {
      put_back(from.buckets[b][0], buckets_[b].param);
      put_back(from.buckets[b][1], buckets_[b].out);
      for (size_t s = 0; s < buckets_[b].states.size(); ++s) put_back(from.buckets[b][2 + s], buckets_[b].states[s]);
    }
    for (size_t g = 0; g < groups_.size(); ++g)
      for (size_t s = 0; s < groups_[g].states.size(); ++s) put_back(from.groups[g][s], groups_[g].states[s]);
  }

  bool are_apart(const PieceMemory& bucket) const { return groups_[bucket.cut->group].reduction == GANNET_REDUCED_LATER; }

  // Calls the plugin as core/update/evaluation.cpp does: only `out` is written, and there is no
  // gradient.
  Bytes weights_to_use(PieceMemory& bucket) {
    SimulatedGroup& group = groups_[bucket.cut->group];
    const Buffer out(bucket.param.bytes(), "the weights to use", true);
    std::vector<void*> states;
    std::vector<std::unique_ptr<ReadOnlyGuard>> held;
    for (size_t s = 0; s < bucket.states.size(); ++s) {
      const bool is_served = group.optimizer->states()[s].is_served();
      states.push_back(is_served ? nullptr : bucket.states[s].data() ? bucket.states[s].data() : group.states[s].data());
      held.push_back(std::make_unique<ReadOnlyGuard>(bucket.states[s], true));
    }
    const ReadOnlyGuard param(bucket.param, true);
    gannet_update_args args{};
    args.struct_size = sizeof(args);
    args.param_dtype = args.out_dtype = problem_.types.param;
    args.numel = bucket.cut->numel;
    args.param = bucket.param.data();
    args.out = out.data();
    args.states = states.data();
    args.state_count = states.size();
    args.grad_scale = 1;
    args.step = static_cast<uint64_t>(last_step_);
    args.hyper = group.optimizer->hyper_values().data();
    args.hyper_count = group.optimizer->hyper_values().size();
    args.segments = bucket.segments.data();
    args.segment_count = bucket.segments.size();
    args.segment_stride = sizeof(gannet_segment);
    args.group = bucket.cut->group;
    give_workspace(args, *group.optimizer, args.numel, last_step_);
    args.seed = 0;
    args.loss = std::numeric_limits<double>::quiet_NaN();
    const CallScope calling("evaluate", args.step, bucket.names);
    group.optimizer->evaluate(args);
    return bytes_in(out);
  }

  void fill_gradient(PieceMemory& bucket, int64_t step) {
    for (const CutPart& part : bucket.cut->parts)
      for (uint64_t i = 0; i < part.numel; ++i) {
        double value = 0;
        if (groups_[bucket.cut->group].reduction != GANNET_REDUCED_BY_HOST)
          value = of_ranks_[rank_].gradient(part.tensor, i, step);
        else
          for (uint32_t r = 0; r < run_.ranks; ++r) value += of_ranks_[r].gradient(part.tensor, i, step) / run_.ranks;
        put(bucket.grad.data(), part.offset + i, problem_.types.grad, value);
      }
  }

  // Sets the seed, the loss, the run's length and the workspace in gannet_step_args or in
  // gannet_update_args of `numel` elements.
  template <class Args>
  void give_workspace(Args& args, const Optimizer& optimizer, uint64_t numel, int64_t step) {
    args.seed = optimizer.uses_seed() ? step_seed(kRunSeed, step - 1) : 0;
    args.workspace_bytes = optimizer.workspace_bytes(numel);
    args.workspace = workspace_.of(args.workspace_bytes, false);
    const bool uses_loss = optimizer.has(GANNET_OPTIMIZER_USES_LOSS);
    args.loss = uses_loss ? plausible_loss(step) : std::numeric_limits<double>::quiet_NaN();
    args.total_steps = kPlannedSteps;
  }

  void edges(void (Optimizer::*function)(gannet_step_args), int64_t step, std::vector<GroupSums>& sums, bool has_sums) {
    const Host::OpenCollectives open(host_, collectives_);
    const Host::OpenMetrics metrics(host_, [](const std::string&, double) {});  // checked by `metrics` (step_checks.cpp)
    for (size_t g = 0; g < groups_.size(); ++g) {
      SimulatedGroup& group = groups_[g];
      std::vector<void*> states;
      for (const Buffer& state : group.states) states.push_back(state.data());
      gannet_step_args args{};
      args.group = static_cast<uint32_t>(g);
      args.step = static_cast<uint64_t>(step);
      args.grad_scale = 1;
      args.hyper = group.optimizer->hyper_values().data();
      args.hyper_count = group.optimizer->hyper_values().size();
      args.states = states.data();
      args.state_count = states.size();
      args.sums = has_sums ? sums[g].values().data() : nullptr;
      args.sum_count = sums[g].width();
      args.lines = has_sums ? sums[g].lines() : nullptr;
      give_workspace(args, *groups_[g].optimizer, 0, step);
      const CallScope calling(has_sums ? "end_step" : "begin_step", args.step, formatted("group {}", g));
      (group.optimizer.get()->*function)(args);
    }
  }

  // Computes the sums of a round, or the update if `round` is null.
  void work(PieceMemory& bucket, int64_t step, GroupSums& sums, const uint32_t* round) {
    SimulatedGroup& group = groups_[bucket.cut->group];
    std::vector<void*> states;
    for (size_t s = 0; s < bucket.states.size(); ++s)
      states.push_back(bucket.states[s].data() ? bucket.states[s].data() : group.states[s].data());
    std::vector<double> rows;
    for (const gannet_segment& segment : bucket.segments)
      rows.insert(rows.end(), sums.row(segment.tensor_index), sums.row(segment.tensor_index) + sums.width());
    gannet_update_args args{};
    args.struct_size = sizeof(args);
    args.param_dtype = problem_.types.param;
    args.grad_dtype = problem_.types.grad;
    args.out_dtype = problem_.types.out;
    args.numel = bucket.cut->numel;
    args.param = bucket.param.data();
    args.grad = bucket.grad.data();
    args.out = bucket.out.data();
    args.states = states.data();
    args.state_count = states.size();
    args.grad_scale = 1;
    args.step = static_cast<uint64_t>(step);
    args.hyper = group.optimizer->hyper_values().data();
    args.hyper_count = group.optimizer->hyper_values().size();
    args.segments = bucket.segments.data();
    args.segment_count = bucket.segments.size();
    args.segment_stride = sizeof(gannet_segment);
    args.sums = rows.empty() ? nullptr : rows.data();
    args.sum_count = sums.width();
    args.lines = sums.lines();
    give_workspace(args, *groups_[bucket.cut->group].optimizer, args.numel, step);
    if (step == 1) bucket.copy_first_values(*group.optimizer, problem_.types.param);
    args.group = bucket.cut->group;
    if (round) {
      std::vector<double> parts = sums.identity_values(bucket.segments.size());
      const CallScope calling("sums", args.step, bucket.names);
      group.optimizer->sums(args, *round, parts.data());
      for (size_t k = 0; k < bucket.segments.size(); ++k)
        sums.add(bucket.segments[k].tensor_index, *round, parts.data() + k * sums.width());
      return;
    }
    const ReadOnlyGuard grad(bucket.grad, true);
    std::unique_ptr<Host::OpenCollectives> open;
    if (group.reduction == GANNET_REDUCED_BY_UPDATE) open = std::make_unique<Host::OpenCollectives>(host_, collectives_);
    const CallScope calling("update", args.step, bucket.names);
    group.optimizer->update(args);
    std::string where;
    for (const Buffer* buffer : {&bucket.param, &bucket.out})
      if (!buffer->is_intact(&where))
        throw CheckFailure(formatted("it wrote outside of its memory, {}", where), text_of(place()));
    for (const Buffer& state : bucket.states)
      if (!state.is_intact(&where)) throw CheckFailure(formatted("it wrote outside of a state, {}", where), text_of(place()));
  }

  const Problem& problem_;
  const OwnReductionRun& run_;
  uint32_t rank_;
  int64_t last_step_ = 0;
  Host host_;
  RankCollectives collectives_;
  std::vector<Problem> of_ranks_;  // [ranks] each with its own gradients
  std::vector<SimulatedGroup> groups_;
  std::deque<CutPiece> cuts_;  // a deque: elements keep their addresses
  std::vector<PieceMemory> buckets_;
  WorkMemory workspace_;
};

}  // namespace gannet::kit
