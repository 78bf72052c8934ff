// One rank of a simulated run (engine.h): the steps of core/update on plain memory.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/format.h"
#include "interfaces/device_numbers.h"
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
  SimulatedRank(const Subject& subject, const Problem& problem, const ProblemCut& cut, const RunOptions& options,
                SimulatedRanks& ranks, uint32_t rank)
      : problem_(problem), options_(options), ranks_(ranks), rank_(rank), collectives_(ranks, rank) {
    host_.set_ranks(rank, ranks.size());
    const plugin::Plugin& plugin = options.uses_reference ? *subject.reference : *subject.plugin;
    for (uint32_t g = 0; g < problem.groups(); ++g) {
      const auto params = plugin::parse_params(plugin, options.uses_reference ? subject.reference_params : subject.params, {});
      const CallScope calling("create", 0);
      SimulatedGroup& group = groups_.emplace_back();
      group.optimizer = std::make_unique<Optimizer>(plugin, params, host_);
      group.hyper = Buffer(group.optimizer->hyper_values().size() * sizeof(double), "the hyperparameters");
    }
    for (uint32_t g = 0; g < problem.groups(); ++g) {
      SimulatedGroup& group = groups_[g];
      const auto context = context_of(problem, g, rank, ranks.size());
      const CallScope calling("describe", 0);
      group.optimizer->describe(context);
      group.tensors = context.tensors.size();
      group.optimizer->require_support(problem.types.param, problem.types.grad, problem.types.out);
      for (const auto& state : group.optimizer->states())
        group.group_states.push_back(state.is_of_group() ? new_state(state, type_of(state, problem.types.param),
                                                                     group.optimizer->group_numel(state), options.is_tight)
                                                         : Buffer());
    }
    for (const CutPiece& piece : cut.ranks[rank])
      pieces_.emplace_back(problem, piece, *groups_[piece.group].optimizer, options.is_tight);
    if (options.from) restore(*options.from);
  }

  // One step, in the order of Updater::update().
  void step(int64_t applied) {
    const int64_t step = applied + 1;
    if (options_.observe) options_.observe(step);
    sums_.clear();
    for (uint32_t g = 0; g < groups_.size(); ++g) {
      SimulatedGroup& group = groups_[g];
      sums_.emplace_back(*group.optimizer, group.tensors);
      std::vector<double> hyper = group.optimizer->hyper_values();
      if (options_.schedule) options_.schedule(step, g, hyper);
      std::copy(hyper.begin(), hyper.end(), group.hyper.as<double>());
    }
    fill_gradients(step);
    edges("begin_step", &Optimizer::begin_step, step, false);
    add_all_sums(applied, GANNET_PASS_UPDATE);
    for (const std::vector<PieceMemory*>& list : calls_in(applied)) update(list, applied);
    edges("end_step", &Optimizer::end_step, step, true);
  }

  // Request from the plugin the perturbed parameters and the evaluation weights of this rank's
  // pieces after these updates.
  void perturb(int64_t applied, TrainingResult& trained);
  void evaluate(int64_t applied, TrainingResult& trained);
  // Adds this rank's part of the results.
  void give(TrainingResult& trained) const;
  const Optimizer& optimizer() const { return *groups_[0].optimizer; }

 private:
  struct SimulatedGroup;
  void gather(const PieceMemory& piece, const Buffer& from, std::vector<Bytes>& tensors) const;
  static std::vector<std::unique_ptr<ReadOnlyGuard>> held_inputs(const PieceMemory& piece, const SimulatedGroup& group);
  void add_all_sums(int64_t applied, gannet_pass pass) {
    uint32_t rounds = 0;
    for (const GroupSums& group : sums_) rounds = std::max(rounds, group.rounds());
    for (uint32_t round = 0; round < rounds; ++round) {
      for (const std::vector<PieceMemory*>& list : calls_in(applied))
        if (sums_[list[0]->cut->group].has_round(round)) add_sums(list, applied, round, pass);
      for (PieceMemory& piece : pieces_) add_parts(piece, round);  // in a fixed order, whatever the order of the calls
      complete(sums_, round, ranks_, rank_);
    }
  }

  struct SimulatedGroup {
    std::unique_ptr<Optimizer> optimizer;
    size_t tensors = 0;
    std::vector<Buffer> group_states;
    Buffer hyper;
  };

  void restore(const TrainingResult& from);
  void fill_gradients(int64_t step) {
    for (PieceMemory& piece : pieces_)
      for (const CutPart& part : piece.cut->parts)
        for (uint64_t i = 0; i < part.numel; ++i)
          put_gradient(piece.grad.data(), part.offset + i, problem_.gradient(part.tensor, part.begin + i, step), step);
    Problem other = problem_;
    other.seed += options_.second_seed;
    for (PieceMemory& piece : pieces_)
      for (const CutPart& part : piece.cut->parts)
        for (uint64_t i = 0; piece.second.data() && i < part.numel; ++i)
          put(piece.second.data(), part.offset + i, problem_.types.param, other.gradient(part.tensor, part.begin + i, step));
  }

  // The scaled gradient is exact: it is rounded before it is scaled.
  void put_gradient(void* gradients, uint64_t i, double value, int64_t step) const {
    put(gradients, i, problem_.types.grad, value);
    if (const int power = power_of(step); power != 0)
      put(gradients, i, problem_.types.grad, std::ldexp(get(gradients, i, problem_.types.grad), power));
  }
  int power_of(int64_t step) const { return options_.scale_power ? options_.scale_power(step) : 0; }
  double grad_scale_of(int64_t step) const { return std::ldexp(options_.grad_scale, -power_of(step)); }

  // Calls begin_step or end_step for every group.
  void edges(const char* name, void (Optimizer::*function)(gannet_step_args), int64_t step, bool has_sums) {
    const Host::OpenCollectives open(host_, collectives_);
    for (size_t g = 0; g < groups_.size(); ++g) {
      SimulatedGroup& group = groups_[g];
      std::vector<void*> states;
      for (const Buffer& state : group.group_states) states.push_back(state.data());
      gannet_step_args args{};
      args.group = static_cast<uint32_t>(g);
      args.step = static_cast<uint64_t>(step);
      args.grad_scale = grad_scale_of(step);
      const Buffer other = other_hyper(group);
      args.hyper = (other.data() ? other : group.hyper).as<double>();
      if (other.data()) args.grad_scale *= 2;
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
      args.loss = loss_of(group, step);
      args.total_steps = options_.total_steps(step);
      const Host::OpenMetrics metrics(host_, [&](const std::string& shown, double value) {
        if (!options_.observe) metrics_.push_back({step, args.group, shown, value});
      });
      const ReadOnlyGuard held(group.hyper, options_.guards_inputs);
      const CallScope calling(name, static_cast<uint64_t>(step), formatted("group {}", g));
      (group.optimizer.get()->*function)(args);
      look_at_canaries(group.group_states, name);
      look_at(workspace_.buffer(), "the workspace");
    }
  }

  uint64_t seed_of(const SimulatedGroup& group, int64_t applied) const {
    return group.optimizer->uses_seed() ? step_seed(options_.run_seed, applied) : 0;
  }

  // The same for all pieces of a step and on all ranks; NaN for an optimizer that does not ask for it.
  double loss_of(const SimulatedGroup& group, int64_t step) const {
    return group.optimizer->has(GANNET_OPTIMIZER_USES_LOSS) ? options_.loss(step) : std::numeric_limits<double>::quiet_NaN();
  }

  // The memory that one piece's arguments point to until the call returns.
  struct SimulatedCall {
    explicit SimulatedCall(PieceMemory* of) : piece(of) {}
    PieceMemory* piece;
    gannet_update_args args{};
    std::vector<void*> states, squares;
    Buffer rows, numbers;  // rows: the sums so far; numbers: the device numbers
    WorkMemory workspace;
    std::vector<gannet_segment> segments;  // the segments' original values
  };

  // Fills `call`, which must not move. Calls made for evaluate() have no sums and no loss, and use
  // the host's own numbers.
  void prepare(SimulatedCall& call, int64_t applied, bool evaluates = false);
  // The pieces of each call: one piece, or a list of pieces of one group in their own order.
  std::vector<std::vector<PieceMemory*>> calls_in(int64_t applied);
  Buffer other_hyper(const SimulatedGroup& group) const;
  void move_buffers(PieceMemory& piece, SimulatedGroup& group);
  void add_sums(const std::vector<PieceMemory*>& list, int64_t applied, uint32_t round, gannet_pass pass);
  void require_combined(const SimulatedCall& call, uint32_t round);
  void add_parts(const PieceMemory& piece, uint32_t round);
  void update(const std::vector<PieceMemory*>& list, int64_t applied);
  void look_at_piece(const SimulatedCall& call) const;
  std::vector<std::unique_ptr<ReadOnlyGuard>> held_in(const SimulatedCall& call, const SimulatedGroup& group, bool is_sums) const;

  void look_at(const Buffer& buffer, const std::string& name) const {
    std::string where;
    if (options_.is_tight && !buffer.is_intact(&where))
      throw CheckFailure(formatted("it wrote to memory of {}, {}", name, where), text_of(place()));
  }
  void look_at_canaries(const std::vector<Buffer>& buffers, const char* name) const {
    for (const Buffer& buffer : buffers) look_at(buffer, name);
  }

  const Problem& problem_;
  const RunOptions& options_;
  SimulatedRanks& ranks_;
  uint32_t rank_;
  Host host_;
  RankCollectives collectives_;
  std::vector<SimulatedGroup> groups_;
  std::vector<PieceMemory> pieces_;
  std::vector<GroupSums> sums_;
  std::vector<Buffer> gone_;
  std::map<const PieceMemory*, Buffer> parts_;  // [segments][sums], this round's partial sums
  WorkMemory workspace_;                        // for begin_step and end_step
  std::vector<ShownMetric> metrics_;
};

}  // namespace gannet::kit
