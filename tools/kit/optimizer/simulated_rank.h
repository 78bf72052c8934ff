// One rank of a simulated run (engine.h): what core/update does in a step, on plain memory.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/format.h"
#include "interfaces/seeds.h"
#include "kit/memory.h"
#include "kit/numbers.h"
#include "kit/object.h"
#include "kit/optimizer/engine.h"
#include "kit/optimizer/extents.h"
#include "kit/optimizer/piece_memory.h"
#include "kit/optimizer/work_memory.h"
#include "kit/ranks.h"

namespace gannet::kit {

class SimulatedRank {
 public:
  SimulatedRank(const Subject& subject, const Problem& problem, const Cut& cut, const RunOptions& options, Ranks& ranks,
                uint32_t rank)
      : problem_(problem), options_(options), ranks_(ranks), rank_(rank), collectives_(ranks, rank) {
    host_.set_ranks(rank, ranks.size());
    const plugin::Plugin& plugin = options.uses_reference ? *subject.reference : *subject.plugin;
    for (uint32_t g = 0; g < problem.groups(); ++g) {
      const auto params = plugin::parse_params(plugin, options.uses_reference ? subject.reference_params : subject.params, {});
      const Calling calling("create", 0);
      Group& group = groups_.emplace_back();
      group.optimizer = std::make_unique<Optimizer>(plugin, params, host_);
      group.hyper = Buffer(group.optimizer->hyper_values().size() * sizeof(double), "the hyperparameters");
    }
    for (uint32_t g = 0; g < problem.groups(); ++g) {
      Group& group = groups_[g];
      const auto context = context_of(problem, g, rank, ranks.size());
      const Calling calling("describe", 0);
      group.optimizer->describe(context);
      group.tensors = context.tensors.size();
      group.optimizer->require_support(problem.types.param, problem.types.grad, problem.types.out);
      for (const auto& state : group.optimizer->states())
        group.own_states.push_back(state.is_of_group() ? new_state(state, type_of(state, problem.types.param),
                                                                   group.optimizer->group_numel(state), options.is_tight)
                                                       : Buffer());
    }
    for (const CutPiece& piece : cut.ranks[rank])
      pieces_.emplace_back(problem, piece, *groups_[piece.group].optimizer, options.is_tight);
    if (options.from) restore(*options.from);
  }

  // In the order of Updater::update().
  void step(int64_t applied) {
    const int64_t step = applied + 1;
    sums_.clear();
    for (Group& group : groups_) {
      sums_.emplace_back(*group.optimizer, group.tensors);
      std::vector<double> hyper = group.optimizer->hyper_values();
      if (options_.schedule) options_.schedule(step, hyper);
      std::copy(hyper.begin(), hyper.end(), group.hyper.as<double>());
    }
    fill_gradients(step);
    edges("begin_step", &Optimizer::begin_step, step, false);
    add_all_sums(applied, GANNET_PASS_UPDATE);
    for (PieceMemory& piece : pieces_)
      if (piece.lag <= applied) update(piece, applied);
    edges("end_step", &Optimizer::end_step, step, true);
  }

  // Where the step after these updates would take its gradient, and the weights to evaluate with, of this rank's pieces.
  void perturb(int64_t applied, Trained& trained);
  void evaluate(int64_t applied, Trained& trained);
  // This rank's part of what is left.
  void give(Trained& trained) const;
  const Optimizer& optimizer() const { return *groups_[0].optimizer; }

 private:
  struct Group;
  void gather(const PieceMemory& piece, const Buffer& from, std::vector<Bytes>& tensors) const;
  static std::vector<std::unique_ptr<ReadOnly>> held_inputs(const PieceMemory& piece, const Group& group);
  void add_all_sums(int64_t applied, gannet_pass pass) {
    uint32_t rounds = 0;
    for (const GroupSums& group : sums_) rounds = std::max(rounds, group.rounds());
    for (uint32_t round = 0; round < rounds; ++round) {
      for (PieceMemory& piece : pieces_)
        if (piece.lag <= applied && sums_[piece.cut->group].has_round(round)) add_sums(piece, applied, round, pass);
      complete(sums_, round, ranks_, rank_);
    }
  }

  struct Group {
    std::unique_ptr<Optimizer> optimizer;
    size_t tensors = 0;
    std::vector<Buffer> own_states;
    Buffer hyper;
  };

  void restore(const Trained& from);
  void fill_gradients(int64_t step) {
    for (PieceMemory& piece : pieces_)
      for (const Part& part : piece.cut->parts)
        for (uint64_t i = 0; i < part.numel; ++i)
          put(piece.grad.data(), part.offset + i, problem_.types.grad, problem_.gradient(part.tensor, part.begin + i, step));
    Problem other = problem_;
    other.seed += options_.second_seed;
    for (PieceMemory& piece : pieces_)
      for (const Part& part : piece.cut->parts)
        for (uint64_t i = 0; piece.second.data() && i < part.numel; ++i)
          put(piece.second.data(), part.offset + i, problem_.types.param, other.gradient(part.tensor, part.begin + i, step));
  }

  // begin_step or end_step of every group.
  void edges(const char* name, void (Optimizer::*function)(gannet_step_args), int64_t step, bool has_sums) {
    const Host::Open open(host_, collectives_);
    for (size_t g = 0; g < groups_.size(); ++g) {
      Group& group = groups_[g];
      std::vector<void*> states;
      for (const Buffer& state : group.own_states) states.push_back(state.data());
      gannet_step_args args{};
      args.group = static_cast<uint32_t>(g);
      args.step = static_cast<uint64_t>(step);
      args.grad_scale = options_.grad_scale;
      args.hyper = group.hyper.as<double>();
      args.hyper_count = group.hyper.bytes() / sizeof(double);
      args.states = states.data();
      args.state_count = states.size();
      if (has_sums) {
        args.sums = sums_[g].values().data();
        args.lines = sums_[g].lines();
      }
      args.sum_count = sums_[g].width();
      args.seed = seed_of(group, step - 1);
      args.workspace_bytes = group.optimizer->workspace_bytes(0);
      args.workspace = workspace_.of(args.workspace_bytes, options_.is_tight);
      const ReadOnly held(group.hyper, options_.guards_inputs);
      const Calling calling(name, static_cast<uint64_t>(step), formatted("group {}", g));
      (group.optimizer.get()->*function)(args);
      look_at_canaries(group.own_states, name);
      look_at(workspace_.buffer(), "the workspace");
    }
  }

  uint64_t seed_of(const Group& group, int64_t applied) const {
    return group.optimizer->uses_seed() ? step_seed(options_.run_seed, applied) : 0;
  }

  gannet_update_args arguments(PieceMemory& piece, int64_t applied, std::vector<void*>& states, const Buffer& rows) {
    Group& group = groups_[piece.cut->group];
    states.clear();
    for (size_t s = 0; s < piece.states.size(); ++s)
      states.push_back(group.optimizer->states()[s].is_cut() ? piece.states[s].data() : group.own_states[s].data());
    gannet_update_args args{};
    args.struct_size = sizeof(args);
    args.param_dtype = problem_.types.param;
    args.grad_dtype = problem_.types.grad;
    args.out_dtype = problem_.types.out;
    args.numel = piece.cut->numel;
    args.param = piece.param.data();
    args.grad = piece.grad.data();
    args.out = piece.out.data();
    args.states = states.data();
    args.state_count = states.size();
    args.grad_scale = options_.grad_scale;
    args.step = static_cast<uint64_t>(applied - piece.lag) + 1;
    args.hyper = group.hyper.as<double>();
    args.hyper_count = group.hyper.bytes() / sizeof(double);
    args.segments = piece.segments.data();
    args.segment_count = piece.segments.size();
    args.segment_stride = sizeof(gannet_segment);
    args.sum_count = sums_[piece.cut->group].width();
    args.sums = args.sum_count > 0 ? rows.as<double>() : nullptr;
    args.lines = sums_[piece.cut->group].lines();
    args.group = piece.cut->group;
    args.seed = seed_of(group, applied);
    args.workspace_bytes = group.optimizer->workspace_bytes(args.numel);
    args.workspace = workspace_.of(args.workspace_bytes, options_.is_tight);
    squares_.clear();
    for (const Buffer& square : piece.squares) squares_.push_back(square.data());
    args.squares = squares_.empty() ? nullptr : squares_.data();
    if (args.step == 1) piece.copy_first_values(*group.optimizer, problem_.types.param);
    return args;
  }

  // The sums so far of a piece's segments.
  Buffer rows_of(PieceMemory& piece) {
    GroupSums& sums = sums_[piece.cut->group];
    if (sums.width() == 0) return {};
    Buffer rows(piece.segments.size() * sums.width() * sizeof(double), "the sums that it is given", options_.is_tight);
    for (size_t k = 0; k < piece.segments.size(); ++k)
      std::copy_n(sums.row(piece.segments[k].tensor_index), sums.width(), rows.as<double>() + k * sums.width());
    return rows;
  }

  void add_sums(PieceMemory& piece, int64_t applied, uint32_t round, gannet_pass pass) {
    Group& group = groups_[piece.cut->group];
    GroupSums& sums = sums_[piece.cut->group];
    const Buffer rows = rows_of(piece);
    std::vector<void*> states;
    gannet_update_args args = arguments(piece, applied, states, rows);
    args.pass = pass;
    const std::vector<double> nothing = sums.of_nothing(piece.segments.size());
    Buffer parts(nothing.size() * sizeof(double), "the sums that it adds to", options_.is_tight);
    std::copy(nothing.begin(), nothing.end(), parts.as<double>());
    {
      const bool on = options_.guards_sums;
      std::vector<std::unique_ptr<ReadOnly>> held;
      for (const Buffer* each : {&piece.param, &piece.out}) held.push_back(std::make_unique<ReadOnly>(*each, on));
      for (const auto* states_of : {&piece.states, &group.own_states})
        for (const Buffer& state : *states_of) held.push_back(std::make_unique<ReadOnly>(state, on));
      for (const Buffer& square : piece.squares) held.push_back(std::make_unique<ReadOnly>(square, on));
      const ReadOnly grad(piece.grad, options_.guards_gradients), hyper(group.hyper, options_.guards_inputs);
      const Calling calling("sums", args.step, piece.names);
      group.optimizer->sums(args, round, parts.as<double>());
    }
    for (size_t k = 0; k < piece.segments.size(); ++k)
      sums.add(piece.segments[k].tensor_index, round, parts.as<double>() + k * sums.width());
  }

  void update(PieceMemory& piece, int64_t applied) {
    Group& group = groups_[piece.cut->group];
    const Buffer rows = rows_of(piece);
    std::vector<Buffer> kept;
    if (options_.moves_buffers) {  // to new addresses; the old ones are gone
      const auto move = [&](Buffer& buffer, const char* name) {
        if (!buffer.data()) return;
        Buffer fresh(buffer.bytes(), formatted("{}, kept from an earlier call", name));
        std::memcpy(fresh.data(), buffer.data(), buffer.bytes());
        std::swap(fresh, buffer);
        fresh.forbid();
        gone_.push_back(std::move(fresh));
        if (gone_.size() > 2000) gone_.erase(gone_.begin(), gone_.begin() + 1000);
      };
      move(piece.param, "the parameter");
      move(piece.grad, "the gradient");
      move(piece.out, "the copy `out`");
      move(piece.second, "the second gradient");
      for (Buffer& state : piece.states) move(state, "a state");
      for (Buffer& state : group.own_states) move(state, "a state");
      for (Buffer& square : piece.squares) move(square, "a square");
    }
    std::vector<void*> states;
    gannet_update_args args = arguments(piece, applied, states, rows);
    if (group.optimizer->wants_second_gradient(static_cast<uint64_t>(applied) + 1)) args.second_grad = piece.second.data();
    {
      const ReadOnly grad(piece.grad, options_.guards_gradients), second(piece.second, options_.guards_gradients),
          hyper(group.hyper, options_.guards_inputs), given(rows, options_.guards_inputs);
      std::vector<std::unique_ptr<ReadOnly>> held;
      for (const Buffer& state : group.own_states) held.push_back(std::make_unique<ReadOnly>(state, options_.guards_own_states));
      const std::vector<gannet_segment> segments = piece.segments;
      const Calling calling("update", args.step, piece.names);
      std::optional<Host::Open> open;
      if (group.optimizer->reduction(args.step) == GANNET_REDUCED_BY_UPDATE) open.emplace(host_, collectives_);
      group.optimizer->update(args);
      if (options_.guards_inputs &&
          std::memcmp(segments.data(), piece.segments.data(), segments.size() * sizeof(segments[0])) != 0)
        throw Failed("it wrote to the segments that it was given", text_of(place()));
    }
    look_at_canaries(piece.states, "a state");
    look_at_canaries(piece.squares, "a square");
    look_at(workspace_.buffer(), "the workspace");
    for (const auto& [buffer, name] : {std::pair{&piece.param, "the parameter"},
                                       {&piece.grad, "the gradient"},
                                       {&piece.second, "the second gradient"},
                                       {&piece.out, "the copy `out`"}})
      look_at(*buffer, name);
  }

  void look_at(const Buffer& buffer, const std::string& name) const {
    std::string where;
    if (options_.is_tight && !buffer.is_intact(&where))
      throw Failed(formatted("it wrote to memory of {}, {}", name, where), text_of(place()));
  }
  void look_at_canaries(const std::vector<Buffer>& buffers, const char* name) const {
    for (const Buffer& buffer : buffers) look_at(buffer, name);
  }

  const Problem& problem_;
  const RunOptions& options_;
  Ranks& ranks_;
  uint32_t rank_;
  Host host_;
  RankCollectives collectives_;
  std::vector<Group> groups_;
  std::vector<PieceMemory> pieces_;
  std::vector<GroupSums> sums_;
  std::vector<Buffer> gone_;
  WorkMemory workspace_;
  std::vector<void*> squares_;
};

}  // namespace gannet::kit
