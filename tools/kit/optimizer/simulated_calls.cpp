// A simulated rank's calls (simulated_rank.h) for pieces: sums and updates, singly or in
// lists.
#include "kit/optimizer/simulated_rank.h"

namespace gannet::kit {

void SimulatedRank::prepare(SimulatedCall& call, int64_t applied, bool evaluates) {
  PieceMemory& piece = *call.piece;
  SimulatedGroup& group = groups_[piece.cut->group];
  Optimizer& optimizer = *group.optimizer;
  for (size_t s = 0; s < piece.states.size(); ++s)
    call.states.push_back(optimizer.states()[s].is_cut() ? piece.states[s].data() : group.group_states[s].data());
  for (const Buffer& square : piece.squares) call.squares.push_back(square.data());
  gannet_update_args& args = call.args;
  args.struct_size = sizeof(args);
  args.param_dtype = problem_.types.param;
  args.grad_dtype = problem_.types.grad;
  args.out_dtype = problem_.types.out;
  args.numel = piece.cut->numel;
  args.param = piece.param.data();
  args.grad = piece.grad.data();
  args.out = piece.out.data();
  args.states = call.states.data();
  args.state_count = call.states.size();
  args.grad_scale = grad_scale_of(applied + 1);
  args.step = static_cast<uint64_t>(applied - piece.lag) + 1;
  args.hyper = group.hyper.as<double>();
  args.hyper_count = group.hyper.bytes() / sizeof(double);
  args.segments = piece.segments.data();
  args.segment_count = piece.segments.size();
  args.segment_stride = sizeof(gannet_segment);
  args.group = piece.cut->group;
  args.seed = seed_of(group, applied);
  args.workspace_bytes = optimizer.workspace_bytes(args.numel);
  args.workspace = call.workspace.of(args.workspace_bytes, options_.is_tight);
  args.squares = call.squares.empty() ? nullptr : call.squares.data();
  args.loss = evaluates ? std::numeric_limits<double>::quiet_NaN() : loss_of(group, applied + 1);
  args.total_steps = options_.total_steps(applied + 1);
  if (args.step == 1) piece.copy_first_values(optimizer, problem_.types.param);
  if (evaluates) return;
  if (GroupSums& sums = sums_[piece.cut->group]; sums.width() > 0) {
    args.sum_count = sums.width();
    call.rows = Buffer(piece.segments.size() * sums.width() * sizeof(double), "the sums that it is given", options_.is_tight);
    for (size_t k = 0; k < piece.segments.size(); ++k)
      std::copy_n(sums.row(piece.segments[k].tensor_index), sums.width(), call.rows.as<double>() + k * sums.width());
    args.sums = call.rows.as<double>();
    args.lines = sums.lines();
  }
  if (!optimizer.takes_device_numbers()) return;
  const std::vector<double> numbers = numbers_of(args, applied >= options_.skipped_from);
  call.numbers = Buffer(numbers.size() * sizeof(double), "the device numbers", options_.is_tight);
  std::copy(numbers.begin(), numbers.end(), call.numbers.as<double>());
  give_numbers(args, call.numbers.as<double>(), numbers.size());
}

std::vector<std::vector<PieceMemory*>> SimulatedRank::calls_in(int64_t applied) {
  std::vector<std::vector<PieceMemory*>> calls;
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    const size_t longest = groups_[g].optimizer->takes_lists() ? std::max<size_t>(options_.list_length, 1) : 1;
    std::vector<PieceMemory*> pieces;
    for (PieceMemory& piece : pieces_)
      if (piece.cut->group == g && piece.lag <= applied) pieces.push_back(&piece);
    if (options_.reverses_lists) std::reverse(pieces.begin(), pieces.end());
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (i % longest == 0) calls.emplace_back();
      calls.back().push_back(pieces[i]);
    }
  }
  return calls;
}

// Numbers for begin_step and end_step that no update() gets: if update() uses them, its results
// change.
Buffer SimulatedRank::other_hyper(const SimulatedGroup& group) const {
  if (!options_.alters_edges || group.hyper.bytes() == 0) return {};
  Buffer other(group.hyper.bytes(), "the hyperparameters of begin_step and end_step");
  for (size_t i = 0; i < other.bytes() / sizeof(double); ++i) other.as<double>()[i] = 0.5 * group.hyper.as<double>()[i];
  return other;
}

// Moves the buffers to new addresses; accesses to the old ones fault.
void SimulatedRank::move_buffers(PieceMemory& piece, SimulatedGroup& group) {
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
  for (Buffer& state : group.group_states) move(state, "a state");
  for (Buffer& square : piece.squares) move(square, "a square");
}

// For the lifetime of the result, write-protects those inputs of a call that the run's
// options select.
std::vector<std::unique_ptr<ReadOnlyGuard>> SimulatedRank::held_in(const SimulatedCall& call, const SimulatedGroup& group,
                                                                   bool is_sums) const {
  std::vector<std::unique_ptr<ReadOnlyGuard>> held;
  const auto hold = [&](const Buffer& buffer, bool on) { held.push_back(std::make_unique<ReadOnlyGuard>(buffer, on)); };
  const PieceMemory& piece = *call.piece;
  for (const Buffer* each : {&piece.grad, &piece.second}) hold(*each, options_.guards_gradients);
  for (const Buffer* each : {&group.hyper, &call.numbers}) hold(*each, options_.guards_inputs);
  for (const Buffer& state : group.group_states) hold(state, is_sums ? options_.guards_sums : options_.guards_own_states);
  if (!is_sums) {
    hold(call.rows, options_.guards_inputs);
    return held;
  }
  for (const Buffer* each : {&piece.param, &piece.out}) hold(*each, options_.guards_sums);
  for (const auto* of_piece : {&piece.states, &piece.squares})
    for (const Buffer& each : *of_piece) hold(each, options_.guards_sums);
  return held;
}

void SimulatedRank::add_sums(const std::vector<PieceMemory*>& list, int64_t applied, uint32_t round, gannet_pass pass) {
  SimulatedGroup& group = groups_[list[0]->cut->group];
  const GroupSums& sums = sums_[list[0]->cut->group];
  std::deque<SimulatedCall> calls;
  std::vector<gannet_update_args> args;
  std::vector<double*> places;
  std::vector<std::unique_ptr<ReadOnlyGuard>> held;
  for (PieceMemory* piece : list) {
    SimulatedCall& call = calls.emplace_back(piece);
    prepare(call, applied);
    call.args.pass = pass;
    if (pass == GANNET_PASS_PERTURB) call.args.loss = std::numeric_limits<double>::quiet_NaN();
    const std::vector<double> nothing = sums.identity_values(piece->segments.size());
    Buffer& parts = parts_[piece] = Buffer(nothing.size() * sizeof(double), "the sums that it adds to", options_.is_tight);
    std::copy(nothing.begin(), nothing.end(), parts.as<double>());
    args.push_back(call.args);
    places.push_back(parts.as<double>());
  }
  for (const SimulatedCall& call : calls)
    for (auto& each : held_in(call, group, true)) held.push_back(std::move(each));
  const uint64_t step = static_cast<uint64_t>(applied - list[0]->lag) + 1;
  if (options_.list_length > 0 && group.optimizer->takes_lists()) {
    const CallScope calling("sums_many", step, list[0]->names);
    group.optimizer->sums_many(args, round, places.data());
  } else {
    const CallScope calling("sums", step, list[0]->names);
    group.optimizer->sums(args[0], round, places[0]);
  }
  held.clear();
  for (const SimulatedCall& call : calls) {
    look_at(call.workspace.buffer(), "the workspace");
    look_at(parts_[call.piece], "the sums that it adds to");
    if (options_.combines_sums) require_combined(call, round);
  }
}

// Requests a piece's partial sums again, starting from values that a sum must add to, and that a
// maximum or minimum must keep.
void SimulatedRank::require_combined(const SimulatedCall& call, uint32_t round) {
  GroupSums& sums = sums_[call.piece->cut->group];
  Optimizer& optimizer = *groups_[call.piece->cut->group].optimizer;
  const auto begin_of = [](gannet_reduce_op op) { return op == GANNET_SUM ? 3.0 : op == GANNET_MAX ? 1e30 : -1e30; };
  const Buffer parts(parts_[call.piece].bytes(), "the sums that it adds to", options_.is_tight);
  const size_t width = sums.width();
  for (size_t i = 0; i < parts.bytes() / sizeof(double); ++i) parts.as<double>()[i] = begin_of(optimizer.sums()[i % width].op);
  const auto kept = sums.kept_lines();
  {
    const CallScope calling("sums", call.args.step, call.piece->names);
    optimizer.sums(call.args, round, parts.as<double>());
  }
  sums.restore_lines(kept);
  for (size_t i = 0; i < parts.bytes() / sizeof(double); ++i) {
    const Optimizer::Sum& sum = optimizer.sums()[i % width];
    if (sum.round != round || sum.is_of_lines()) continue;
    const double part = parts_[call.piece].as<double>()[i], begin = begin_of(sum.op);
    const double expected = sum.op == GANNET_SUM ? begin + part : begin, found = parts.as<double>()[i];
    if (!(std::fabs(found - expected) <= 1e-6 * (std::fabs(begin) + std::fabs(part))))
      throw CheckFailure(formatted("sum number {} became {}, and it was {} before the call, which contributes {}", i % width,
                                   found, begin, part),
                         text_of(place()));
  }
}

void SimulatedRank::add_parts(const PieceMemory& piece, uint32_t round) {
  const auto found = parts_.find(&piece);
  if (found == parts_.end()) return;  // the round has no sums of its group
  GroupSums& sums = sums_[piece.cut->group];
  for (size_t k = 0; k < piece.segments.size(); ++k)
    sums.add(piece.segments[k].tensor_index, round, found->second.as<double>() + k * sums.width());
  parts_.erase(found);
}

void SimulatedRank::update(const std::vector<PieceMemory*>& list, int64_t applied) {
  SimulatedGroup& group = groups_[list[0]->cut->group];
  if (options_.moves_buffers)
    for (PieceMemory* piece : list) move_buffers(*piece, group);
  const bool is_second = group.optimizer->wants_second_gradient(static_cast<uint64_t>(applied) + 1);
  std::deque<SimulatedCall> calls;
  std::vector<gannet_update_args> args;
  std::vector<std::unique_ptr<ReadOnlyGuard>> held;
  for (PieceMemory* piece : list) {
    SimulatedCall& call = calls.emplace_back(piece);
    prepare(call, applied);
    if (is_second) call.args.second_grad = piece->second.data();
    call.segments = piece->segments;
    args.push_back(call.args);
  }
  for (const SimulatedCall& call : calls)
    for (auto& each : held_in(call, group, false)) held.push_back(std::move(each));
  const uint64_t step = static_cast<uint64_t>(applied - list[0]->lag) + 1;
  if (options_.list_length > 0 && group.optimizer->takes_lists()) {
    const CallScope calling("update_many", step, list[0]->names);
    group.optimizer->update_many(args);
  } else {
    const CallScope calling("update", step, list[0]->names);
    std::optional<Host::OpenCollectives> open;
    if (group.optimizer->reduction(step) == GANNET_REDUCED_BY_UPDATE) open.emplace(host_, collectives_);
    group.optimizer->update(args[0]);
  }
  held.clear();
  for (const SimulatedCall& call : calls) look_at_piece(call);
  for (SimulatedCall& call : calls) {
    if (!options_.moves_buffers || !call.workspace.buffer().data()) continue;
    gone_.push_back(call.workspace.take());
    gone_.back().forbid();
  }
}

void SimulatedRank::look_at_piece(const SimulatedCall& call) const {
  const PieceMemory& piece = *call.piece;
  if (options_.guards_inputs &&
      std::memcmp(call.segments.data(), piece.segments.data(), call.segments.size() * sizeof(gannet_segment)) != 0)
    throw CheckFailure("it wrote to the segments that it was given", text_of(place()));
  look_at_canaries(piece.states, "a state");
  look_at_canaries(piece.squares, "a square");
  look_at(call.workspace.buffer(), "the workspace");
  for (const auto& [buffer, name] : {std::pair{&piece.param, "the parameter"},
                                     {&piece.grad, "the gradient"},
                                     {&piece.second, "the second gradient"},
                                     {&piece.out, "the copy `out`"}})
    look_at(*buffer, name);
}

}  // namespace gannet::kit
