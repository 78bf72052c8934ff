// The results of a simulated rank (simulated_rank.h), and their restoration.
#include "kit/optimizer/simulated_rank.h"

namespace gannet::kit {

// Copies a piece's part of each tensor, in the master's type.
void SimulatedRank::gather(const PieceMemory& piece, const Buffer& from, std::vector<Bytes>& tensors) const {
  const size_t size = bytes_of(problem_.types.param);
  for (const CutPart& part : piece.cut->parts)
    std::memcpy(tensors[part.tensor].data() + part.begin * size, from.as<char>() + part.offset * size, part.numel * size);
}

// Write-protects the inputs from which the plugin computes a piece's new weights, for the lifetime
// of the result.
std::vector<std::unique_ptr<ReadOnlyGuard>> SimulatedRank::held_inputs(const PieceMemory& piece, const SimulatedGroup& group) {
  std::vector<std::unique_ptr<ReadOnlyGuard>> held;
  for (const Buffer* each : {&piece.param, &group.hyper}) held.push_back(std::make_unique<ReadOnlyGuard>(*each));
  for (const auto* states_of : {&piece.states, &group.group_states})
    for (const Buffer& state : *states_of) held.push_back(std::make_unique<ReadOnlyGuard>(state));
  for (const Buffer& square : piece.squares) held.push_back(std::make_unique<ReadOnlyGuard>(square));
  return held;
}

// Requests the perturbed parameters of this rank's pieces after these updates. The output is first
// set to NaN.
void SimulatedRank::perturb(int64_t applied, TrainingResult& trained) {
  sums_.clear();
  for (SimulatedGroup& group : groups_) sums_.emplace_back(*group.optimizer, group.tensors, GANNET_PASS_PERTURB);
  fill_gradients(applied + 1);
  add_all_sums(applied, GANNET_PASS_PERTURB);
  for (PieceMemory& piece : pieces_) {
    SimulatedGroup& group = groups_[piece.cut->group];
    const gannet_dtype master = problem_.types.param;
    const Buffer out(piece.cut->numel * bytes_of(master), "the perturbed parameters", options_.is_tight);
    for (uint64_t i = 0; i < piece.cut->numel; ++i) put(out.data(), i, master, std::numeric_limits<double>::quiet_NaN());
    SimulatedCall call(&piece);
    prepare(call, applied);
    gannet_update_args& args = call.args;
    args.out_dtype = master;
    args.out = out.data();
    args.pass = GANNET_PASS_PERTURB;
    args.loss = std::numeric_limits<double>::quiet_NaN();
    {
      const auto held = held_inputs(piece, group);
      const ReadOnlyGuard grad(piece.grad), sums(call.rows), numbers(call.numbers);
      const CallScope calling("perturb", static_cast<uint64_t>(applied) + 1, piece.names);
      group.optimizer->perturb(args);
    }
    look_at(out, "the perturbed parameters");
    gather(piece, out, trained.perturbed);
  }
}

// Requests the evaluation weights of this rank's pieces.
void SimulatedRank::evaluate(int64_t applied, TrainingResult& trained) {
  for (PieceMemory& piece : pieces_) {
    SimulatedGroup& group = groups_[piece.cut->group];
    const Buffer out(piece.cut->numel * bytes_of(problem_.types.param), "the weights for evaluation", options_.is_tight);
    for (uint64_t i = 0; i < piece.cut->numel; ++i)
      put(out.data(), i, problem_.types.param, std::numeric_limits<double>::quiet_NaN());
    SimulatedCall call(&piece);
    prepare(call, applied - 1, /*evaluates=*/true);
    gannet_update_args& args = call.args;
    args.grad_dtype = GANNET_DTYPE_NONE;
    args.grad = nullptr;
    args.out_dtype = problem_.types.param;
    args.out = out.data();
    args.sums = nullptr;
    args.lines = nullptr;
    args.sum_count = 0;
    args.seed = 0;
    {
      const auto held = held_inputs(piece, group);
      const CallScope calling("evaluate", args.step, piece.names);
      group.optimizer->evaluate(args);
    }
    look_at(out, "the weights for evaluation");
    gather(piece, out, trained.evaluated);
  }
}

// Adds this rank's part of the results.
void SimulatedRank::give(TrainingResult& trained) const {
  if (rank_ == 0) trained.metrics = metrics_;
  const gannet_dtype master = problem_.types.param;
  for (const PieceMemory& piece : pieces_)
    for (const CutPart& part : piece.cut->parts) {
      const auto copy = [](const CutPart& values, const Buffer& from, gannet_dtype dtype, Bytes& to) {
        const size_t size = bytes_of(dtype);
        std::memcpy(to.data() + values.begin * size, from.as<char>() + values.offset * size, values.numel * size);
      };
      copy(part, piece.param, master, trained.params[part.tensor]);
      if (problem_.types.out != GANNET_DTYPE_NONE) copy(part, piece.out, problem_.types.out, trained.outs[part.tensor]);
      const auto& states = groups_[piece.cut->group].optimizer->states();
      for (size_t s = 0; s < states.size(); ++s)
        if (states[s].is_cut())
          copy(values_in(part, states[s]), piece.states[s], type_of(states[s], master), trained.states[part.tensor][s]);
    }
  for (const PieceMemory& piece : pieces_)
    piece.for_squares([&](size_t tensor, size_t s, const Buffer& square) {
      trained.states[tensor][s].assign(square.as<char>(), square.as<char>() + square.bytes());
    });
  for (const SimulatedGroup& group : groups_) {
    auto& own = trained.group_states[rank_].emplace_back();
    for (const Buffer& state : group.group_states) own.emplace_back(state.as<char>(), state.as<char>() + state.bytes());
  }
}

void SimulatedRank::restore(const TrainingResult& from) {
  for (PieceMemory& piece : pieces_)
    for (const CutPart& part : piece.cut->parts) {
      const auto copy = [](const CutPart& values, const Buffer& to, gannet_dtype dtype, const Bytes& bytes) {
        const size_t size = bytes_of(dtype);
        std::memcpy(to.as<char>() + values.offset * size, bytes.data() + values.begin * size, values.numel * size);
      };
      copy(part, piece.param, problem_.types.param, from.params[part.tensor]);
      const auto& states = groups_[piece.cut->group].optimizer->states();
      for (size_t s = 0; s < states.size(); ++s)
        if (states[s].is_cut())
          copy(values_in(part, states[s]), piece.states[s], type_of(states[s], problem_.types.param),
               from.states[part.tensor][s]);
    }
  for (PieceMemory& piece : pieces_)
    piece.for_squares([&](size_t tensor, size_t s, const Buffer& square) {
      std::memcpy(square.data(), from.states[tensor][s].data(), square.bytes());
    });
  for (size_t g = 0; g < groups_.size(); ++g)  // the same on every rank
    for (size_t s = 0; s < groups_[g].group_states.size(); ++s) {
      const Bytes& bytes = from.group_states[0][g][s];
      if (!bytes.empty()) std::memcpy(groups_[g].group_states[s].data(), bytes.data(), bytes.size());
    }
}

}  // namespace gannet::kit
