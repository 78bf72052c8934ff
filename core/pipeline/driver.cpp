#include "pipeline/driver.h"

#include <ATen/core/grad_mode.h>
#include <gannet/error.h>
#include <gannet/log.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/format.h"
#include "control/world.h"
#include "pipeline/traffic.h"

namespace gannet::pipeline {
namespace {

// The autograd node at which a stage's backward ends: it keeps the gradients of the tensors that
// the stage received. Those tensors are not leaves, so that a layer may change them in place.
class InputGradients : public torch::autograd::Node {
 public:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    of_inputs = std::move(gradients);
    return {};
  }
  torch::autograd::variable_list of_inputs;  // empty until backward reaches this node
};

}  // namespace

struct Driver::InFlight {
  pipe::MicroBatch drawn;                      // inputs: first part; labels, weight: last part
  Wire from_previous, from_next;               // activations and gradients, if that part is on this stage
  std::shared_ptr<InputGradients> inputs;      // null: the inputs need no gradients
  std::vector<bool> input_needs_gradient;      // [inputs]
  std::vector<torch::autograd::Edge> outputs;  // [outputs]; on the last part, only the loss
  std::vector<bool> output_has_gradient;       // [outputs]
  at::Tensor loss_gradient;                    // on the last part
  SplitBackward split;                         // kept between the input and the weight pass
};

Driver::InFlight& Driver::InFlightRef::here() const { return of_chunk(chunk); }
Driver::InFlight& Driver::InFlightRef::of_chunk(size_t other) const { return all[other][static_cast<size_t>(micro_batch)]; }

Driver::Driver(EngineBase& engine, pipe::ModuleImpl& module)
    : engine_(engine),
      module_(module),
      ranks_(context_of(engine)),
      schedule_(module.schedule_),
      chunks_(Stage::chunks_of(module, ranks_)),
      hop_bytes_(schedule_->stage_of().size()),
      clock_(ranks_) {
  train_by_driver_alone(engine);
  if (first_chunk().count() == 1) return;
  const auto call = ranks_.process_group->world()->enter(*ranks_.world_group, "initialize");
  const std::vector<uint32_t>& stages = schedule_->stage_of();
  const bool both_ways = !std::is_sorted(stages.begin(), stages.end());
  forward_lane_.emplace(ranks_, "forward", both_ways);
  backward_lane_.emplace(ranks_, "backward", both_ways);
  if (!ranks_.is_first()) return;
  const int64_t count = ranks_.settings().accumulation_steps;
  const Schedule& order = schedule_->of(count);
  log_idle(order, count);
  log_gathers(order, count, ranks_, module, module.trained_);
}

// `what`: "F" for activations, "B" for gradients. The number of a message encodes its micro-batch and
// the part of the layers that receives it.
Wire Driver::receive(Lane& lane, uint32_t from, const char* what, const Stage& chunk, int64_t micro_batch,
                     std::vector<bool>& requires_grad) {
  const Timers::Scope timed(ranks_.timers, TimedPhase::kPipe);
  try {
    return lane.receive(from, micro_batch * chunk.parts() + chunk.part(), requires_grad);
  } catch (const Error& error) {
    throw Error(error.code(),
                formatted("{} (stage {} was waiting for {} of micro-batch {} from stage {})", error.message(), chunk.index(),
                          what, micro_batch, from),
                error.next_step());
  }
}

Wire Driver::receive_inputs(const Stage& chunk, int64_t micro_batch, std::vector<bool>& requires_grad) {
  return receive(*forward_lane_, chunk.previous_stage(), "F", chunk, micro_batch, requires_grad);
}

void Driver::send_outputs(const Stage& chunk, int64_t micro_batch, const Wire& outputs) {
  if (!has_trained_) {
    double bytes = 0;
    for (const at::Tensor& output : outputs)
      if (output.defined()) bytes += static_cast<double>(output.nbytes());
    hop_bytes_[chunk.part()] = std::max(hop_bytes_[chunk.part()], bytes);
  }
  forward_lane_->send(chunk.next_stage(), micro_batch * chunk.parts() + chunk.part() + 1, outputs);
}

// The index of a part among this stage's chunks.
size_t Driver::chunk_of(uint32_t part) const {
  for (size_t chunk = 0; chunk < chunks_.size(); ++chunk)
    if (chunks_[chunk].part() == part) return chunk;
  GANNET_CHECK(false, "a rank's row has its own parts");
}

void Driver::forward(MicroBatches& batch, const InFlightRef& place) {
  const Stage& chunk = chunks_[place.chunk];
  InFlight& one = place.here();
  Wire inputs;
  if (chunk.is_first()) {
    inputs = std::move(one.drawn.inputs);
  } else {
    if (chunk.previous_stage() == chunk.index())
      inputs = std::move(one.from_previous);
    else
      inputs = receive_inputs(chunk, place.micro_batch, one.input_needs_gradient);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!one.input_needs_gradient[i]) continue;
      if (!one.inputs) one.inputs = std::make_shared<InputGradients>();
      torch::autograd::set_history(inputs[i], one.inputs);
    }
  }
  Wire outputs;
  clock_.measure(&PassTimes::forward, place.chunk, [&] {
    batch.forward(place.micro_batch, [&] {
      outputs = chunk.run(inputs, first_micro_batch_ + place.micro_batch);
      inputs.clear();
      if (chunk.is_last()) outputs = {chunk.loss(outputs, one.drawn)};
    });
  });
  for (const at::Tensor& output : outputs) {
    const bool has_gradient = output.defined() && output.requires_grad();
    one.output_has_gradient.push_back(has_gradient);
    one.outputs.push_back(has_gradient ? MicroBatches::edge_of(output) : torch::autograd::Edge());
  }
  if (chunk.is_last()) {
    const at::Tensor& loss = outputs[0];
    if (!loss.requires_grad())
      throw Error(ErrorCode::kArgument, "the loss of the pipeline does not depend on any parameter that requires a gradient",
                  "compute it from the last layer's results, and do not detach it");
    batch.take_loss(loss);
    one.drawn = {};
    one.loss_gradient = batch.loss_gradient(loss);
    const at::Tensor value = loss.detach().to(at::kDouble).reshape({});
    loss_sum_ = loss_sum_.defined() ? loss_sum_ + value : value;
  } else if (chunk.next_stage() == chunk.index()) {
    InFlight& next = place.of_chunk(place.chunk + 1);
    next.input_needs_gradient = one.output_has_gradient;
    // detach() shares the version counter, so a layer that changes its input in place after another
    // layer has saved it for backward is detected, as in one list of layers.
    for (const at::Tensor& output : outputs) next.from_previous.push_back(output.defined() ? output.detach() : output);
  } else {
    send_outputs(chunk, place.micro_batch, outputs);
  }
}

// The roots of a chunk's backward: the outputs with the next part's gradients, or the loss on the last part.
std::vector<MicroBatches::Root> Driver::roots_of(const InFlightRef& place) {
  const Stage& chunk = chunks_[place.chunk];
  InFlight& one = place.here();
  std::vector<MicroBatches::Root> roots;
  if (chunk.is_last()) {
    roots.push_back({one.outputs[0], one.loss_gradient});
  } else {
    std::vector<bool> unused;
    const Wire gradients = chunk.next_stage() == chunk.index()
                               ? std::exchange(one.from_next, {})
                               : receive(*backward_lane_, chunk.next_stage(), "B", chunk, place.micro_batch, unused);
    for (size_t o = 0; o < one.outputs.size(); ++o)
      if (one.output_has_gradient[o] && gradients[o].defined()) roots.push_back({std::move(one.outputs[o]), gradients[o]});
  }
  one.outputs.clear();
  return roots;
}

// `computed`: the gradients of the inputs that need one; empty if the backward did not reach them.
void Driver::pass_gradients_on(const InFlightRef& place, Wire computed) {
  const Stage& chunk = chunks_[place.chunk];
  const std::vector<bool>& needs_gradient = place.here().input_needs_gradient;
  Wire gradients(needs_gradient.size());
  size_t next = 0;
  for (size_t i = 0; i < gradients.size(); ++i)
    if (needs_gradient[i] && next < computed.size()) gradients[i] = std::move(computed[next++]);
  if (chunk.previous_stage() == chunk.index())
    place.of_chunk(place.chunk - 1).from_next = std::move(gradients);
  else
    backward_lane_->send(chunk.previous_stage(), place.micro_batch * chunk.parts() + chunk.part() - 1, gradients);
}

void Driver::backward(MicroBatches& batch, const InFlightRef& place, bool is_last) {
  InFlight& one = place.here();
  const std::vector<MicroBatches::Root> roots = roots_of(place);
  clock_.measure(&PassTimes::input, place.chunk, [&] { batch.backward(place.micro_batch, roots, is_last); });
  if (!chunks_[place.chunk].is_first()) pass_gradients_on(place, one.inputs ? std::move(one.inputs->of_inputs) : Wire());
}

void Driver::input_pass(MicroBatches& batch, const InFlightRef& place) {
  InFlight& one = place.here();
  std::vector<torch::autograd::Edge> edges;
  for (const bool needs_gradient : one.input_needs_gradient)
    if (needs_gradient) edges.emplace_back(one.inputs, static_cast<uint32_t>(edges.size()));
  const std::vector<MicroBatches::Root> roots = roots_of(place);
  Wire computed;
  clock_.measure(&PassTimes::input, place.chunk,
                 [&] { computed = batch.input_pass(place.micro_batch, roots, edges, one.split); });
  if (!chunks_[place.chunk].is_first()) pass_gradients_on(place, std::move(computed));
}

void Driver::expect_messages(const std::vector<Action>& actions) {
  if (!forward_lane_) return;
  std::map<uint32_t, int64_t> activations, gradients;  // by sending stage
  for (const Action& action : actions) {
    const Stage& chunk = chunks_[chunk_of(action.part)];
    if (action.kind == Action::kForward && !chunk.is_first()) ++activations[chunk.previous_stage()];
    if ((action.kind == Action::kBackward || action.kind == Action::kInput) && !chunk.is_last()) ++gradients[chunk.next_stage()];
  }
  activations.erase(first_chunk().index());  // within this stage there are no messages
  gradients.erase(first_chunk().index());
  forward_lane_->expect(activations);
  backward_lane_->expect(gradients);
}

// Passes the pass durations of the measured batch to the schedule.
void Driver::choose_schedule(int64_t count) {
  std::vector<uint32_t> own_parts;
  for (const Stage& chunk : chunks_) own_parts.push_back(chunk.part());
  const std::string choice = schedule_->set_times(clock_.times(own_parts, schedule_->stage_of().size(), count), count);
  if (ranks_.is_first()) log_info(choice);
}

double Driver::mean_over_ranks(double sum, int64_t count) {
  // Ranks along the tensor axis have the same loss.
  double mean = last_chunk().is_last() && ranks_.mesh->is_first_replica() ? sum / static_cast<double>(count) : 0;
  ranks_.world_group->all_reduce(&mean, 1);
  return mean / ranks_.comm->size();
}

// Runs `body`, and reports its failure to the other ranks. If every rank throws anyway, as after an
// agreed error, the report has no effect.
template <class Body>
auto Driver::told_to_others(const char* call, const Body& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    ranks_.process_group->report_failure(call, error.what());
    throw;
  }
}

double Driver::train_batch(const pipe::Source& source) {
  MicroBatches batch(engine_);
  return told_to_others("train_batch()", [&] { return take_step(batch, source); });
}

pipe::EvalResult Driver::eval_batch(const pipe::Source& source, const pipe::EvalOptions& options) {
  return told_to_others("eval_batch()", [&] { return evaluate(source, options); });
}

double Driver::take_step(MicroBatches& batch, const pipe::Source& source) {
  batch.agree();
  // One watched call of all stages spans the step, so that a late or dead stage is reported by name.
  const auto call = ranks_.process_group->world()->enter(*ranks_.world_group, "train_batch", engine_.global_steps() + 1, "",
                                                         control::Watch::Call::kAtOnce);
  const int64_t count = batch.count();
  std::vector<pipe::MicroBatch> drawn = draw(source, count, "train_batch", /*trains=*/true);
  // The first batch of a run also allocates and compiles, so its timings are not representative.
  clock_.begin(schedule_->wants_times() && has_trained_, chunks_.size());
  const std::vector<Action> actions = schedule_->of(count).actions[first_chunk().index()];
  expect_messages(actions);
  StepState in_flight(chunks_.size());
  for (auto& one : in_flight) one.resize(static_cast<size_t>(count));
  for (size_t i = 0; i < drawn.size(); ++i) {
    in_flight.front()[i].drawn.inputs = std::move(drawn[i].inputs);
    in_flight.back()[i].drawn.labels = std::move(drawn[i].labels);
    in_flight.back()[i].drawn.weight = drawn[i].weight;
  }
  loss_sum_.reset();
  first_micro_batch_ = engine_.micro_steps();
  int64_t ended = 0;  // (chunk, micro-batch) pairs with a finished backward
  const int64_t chunks = std::ssize(chunks_);
  for (const Action& action : actions) {
    const InFlightRef place{in_flight, chunk_of(action.part), action.micro_batch};
    if (action.kind == Action::kForward) {
      forward(batch, place);
    } else if (action.kind == Action::kInput) {
      input_pass(batch, place);
    } else {
      const bool is_last = ++ended == chunks * count;
      if (action.kind == Action::kBackward)
        backward(batch, place, is_last);
      else
        clock_.measure(&PassTimes::weight, place.chunk,
                       [&] { batch.weight_pass(action.micro_batch, std::move(place.here().split), is_last); });
      place.here() = {};
      if (ended % chunks == 0) last_step_ = batch.end_micro_batch();
    }
  }
  if (forward_lane_) {
    forward_lane_->finish();
    backward_lane_->finish();
  }
  if (clock_.measures()) choose_schedule(count);
  if (!std::exchange(has_trained_, true)) log_hops(std::exchange(hop_bytes_, {}), ranks_, schedule_->stage_of());
  return mean_over_ranks(loss_sum_.defined() ? loss_sum_.item<double>() : 0, count);
}

}  // namespace gannet::pipeline
