#include "pipeline/driver.h"

#include <ATen/core/grad_mode.h>
#include <gannet/error.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <string>

#include "base/format.h"
#include "base/outcome.h"
#include "control/world.h"
#include "pipeline/built_in.h"

namespace gannet::pipeline {
namespace {

// The node of a graph at which a stage's backward ends: it keeps the gradients of the tensors that
// the stage received. The tensors are not leaves, so that a layer may change them in place.
class InputGradients : public torch::autograd::Node {
 public:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    of_inputs = std::move(gradients);
    return {};
  }
  torch::autograd::variable_list of_inputs;  // empty before the backward, and if it does not get here
};

uint64_t hash_of(const Wire& tensors) {
  std::string bytes;
  for (const at::Tensor& tensor : tensors) {
    bytes += tensor.defined() ? formatted("{}{}", tensor.sizes().size(), tensor.numel()) : std::string("-");
    if (!tensor.defined() || tensor.numel() == 0 || tensor.layout() != at::kStrided) continue;
    if (!tensor.is_cpu()) continue;  // reading a device would make the host wait for it
    const at::Tensor whole = tensor.detach().contiguous();
    bytes.append(static_cast<const char*>(whole.const_data_ptr()), whole.nbytes());
  }
  return std::hash<std::string>()(bytes);
}

// A source may fill the same tensors again for the next micro-batch, and a layer may change its
// input in place: what the source still holds is copied.
void keep(Wire& tensors) {
  for (at::Tensor& tensor : tensors)
    if (tensor.defined() && (tensor.use_count() > 1 || !tensor.has_storage() || tensor.storage().use_count() > 1))
      tensor = tensor.detach().clone();
}

}  // namespace

struct Driver::InFlight {
  pipe::MicroBatch drawn;                      // on the first and the last stage
  std::shared_ptr<InputGradients> inputs;      // null: the inputs need no gradients
  std::vector<bool> input_needs_gradient;      // [inputs]
  std::vector<torch::autograd::Edge> outputs;  // [outputs] the last stage's only one is the loss
  std::vector<bool> output_has_gradient;       // [outputs]
  at::Tensor loss_gradient;                    // of the last stage
};

Driver::Driver(EngineBase& engine, pipe::ModuleImpl& module)
    : engine_(engine), ranks_(context_of(engine)), stage_(module, ranks_) {
  train_by_driver_alone(engine);
  if (stage_.count() == 1) return;
  const auto call = ranks_.process_group->world()->enter(*ranks_.world_group, "initialize");
  forward_lane_.emplace(ranks_, "forward");
  backward_lane_.emplace(ranks_, "backward");
}

// Draws all micro-batches of a batch before the first one runs. If the data ends, or if the first
// and the last stage have different labels, every rank throws and nothing was begun.
std::vector<pipe::MicroBatch> Driver::draw(const pipe::Source& source, int64_t count, const char* call) {
  std::vector<pipe::MicroBatch> drawn;
  const std::string mine = outcome([&] {
    if (!stage_.is_first() && !stage_.is_last()) return formatted("{}", count);
    if (!source)
      throw Error(ErrorCode::kArgument, formatted("{}() was given no data", call),
                  "pass it a source, call set_dataiterator(), or give initialize training_data");
    uint64_t hash = 0;
    while (static_cast<int64_t>(drawn.size()) < count) {
      std::optional<pipe::MicroBatch> next = source();
      if (!next)
        throw Error(ErrorCode::kNotFound,
                    formatted("{}() takes {} micro-batches, and the data ended after {}", call, count, drawn.size()),
                    "use a source without end, such as RepeatingLoader, or end the loop before");
      keep(next->inputs);
      keep(next->labels);
      hash = std::rotl(hash, 5) ^ hash_of(next->labels);
      drawn.push_back(std::move(*next));
    }
    return formatted("{} {}", count, hash);
  });
  const std::vector<std::string> all = results_of(ranks_.world_group->gather_texts(mine));
  const auto count_of = [](const std::string& text) { return text.substr(0, text.find(' ')); };
  for (size_t rank = 1; rank < all.size(); ++rank)
    if (count_of(all[rank]) != count_of(all[0]))
      throw Error(
          ErrorCode::kMismatch,
          formatted("{}(): rank {} takes {} micro-batches, and rank 0 {}", call, rank, count_of(all[rank]), count_of(all[0])),
          "call set_train_batch_size() with the same number on every rank");
  for (const std::vector<uint32_t>& stages : ranks_.mesh->shape().groups(kPipeAxis))
    if (all[stages.front()] != all[stages.back()])
      throw Error(ErrorCode::kMismatch,
                  formatted("{}(): ranks {} and {}, the first and the last stage of a pipeline, drew different labels", call,
                            stages.front(), stages.back()),
                  "give both stages the same data in the same order: a loader with the same seed and the rank along data");
  return drawn;
}

Wire Driver::receive_inputs(int64_t micro_batch, std::vector<bool>& requires_grad) {
  const Timers::Scope timed(ranks_.timers, TimedPhase::kPipe);
  return forward_lane_->receive(stage_.index() - 1, micro_batch, requires_grad);
}

void Driver::forward(MicroBatches& batch, int64_t micro_batch, InFlight& one) {
  Wire inputs;
  if (stage_.is_first()) {
    inputs = std::move(one.drawn.inputs);
  } else {
    inputs = receive_inputs(micro_batch, one.input_needs_gradient);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!one.input_needs_gradient[i]) continue;
      if (!one.inputs) one.inputs = std::make_shared<InputGradients>();
      torch::autograd::set_history(inputs[i], one.inputs);
    }
  }
  Wire outputs;
  batch.forward(micro_batch, [&] {
    outputs = stage_.run(inputs, first_micro_batch_ + micro_batch);
    inputs.clear();
    if (stage_.is_last()) outputs = {stage_.loss(outputs, one.drawn.labels)};
  });
  if (stage_.is_last()) {
    const at::Tensor& loss = outputs[0];
    if (!loss.requires_grad())
      throw Error(ErrorCode::kArgument, "the loss of the pipeline does not depend on any parameter that requires a gradient",
                  "compute it from the last layer's results, and do not detach it");
    batch.take_loss(loss);
    one.drawn = {};
    one.loss_gradient = batch.loss_gradient(loss);
    const at::Tensor value = loss.detach().to(at::kDouble).reshape({});
    loss_sum_ = loss_sum_.defined() ? loss_sum_ + value : value;
  } else {
    forward_lane_->send(stage_.index() + 1, micro_batch, outputs);
  }
  for (const at::Tensor& output : outputs) {
    const bool has_gradient = output.defined() && output.requires_grad();
    one.output_has_gradient.push_back(has_gradient);
    one.outputs.push_back(has_gradient ? MicroBatches::edge_of(output) : torch::autograd::Edge());
  }
}

void Driver::backward(MicroBatches& batch, int64_t micro_batch, InFlight& one) {
  std::vector<MicroBatches::Root> roots;
  if (stage_.is_last()) {
    roots.push_back({one.outputs[0], one.loss_gradient});
  } else if (std::find(one.output_has_gradient.begin(), one.output_has_gradient.end(), true) != one.output_has_gradient.end()) {
    Wire gradients;
    {
      const Timers::Scope timed(ranks_.timers, TimedPhase::kPipe);
      std::vector<bool> unused;
      gradients = backward_lane_->receive(stage_.index() + 1, micro_batch, unused);
    }
    for (size_t o = 0; o < one.outputs.size(); ++o)
      if (one.output_has_gradient[o] && gradients[o].defined()) roots.push_back({std::move(one.outputs[o]), gradients[o]});
  }
  one.outputs.clear();
  batch.backward(micro_batch, roots);
  if (!one.inputs) return;
  Wire gradients(one.input_needs_gradient.size());
  size_t next = 0;  // inputs without gradients are none of the node's
  for (size_t i = 0; i < gradients.size(); ++i)
    if (one.input_needs_gradient[i]) {
      if (next < one.inputs->of_inputs.size()) gradients[i] = one.inputs->of_inputs[next];
      ++next;
    }
  backward_lane_->send(stage_.index() - 1, micro_batch, gradients);
}

double Driver::mean_over_ranks(double sum, int64_t count) {
  // Ranks along the tensor axis have the same loss.
  double mean = stage_.is_last() && ranks_.mesh->is_first_replica() ? sum / static_cast<double>(count) : 0;
  ranks_.world_group->all_reduce(&mean, 1);
  return mean / ranks_.comm->size();
}

// Runs `body`, and tells the other ranks why it failed. If all of them throw, as they do for what
// they agree on, none is disturbed.
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
  // One call of all stages around the step: a stage that is late, dead or elsewhere is named
  // although no other rank has its part of the model.
  const auto call = ranks_.process_group->world()->enter(*ranks_.world_group, "train_batch", engine_.global_steps() + 1, "",
                                                         control::Watch::Call::kAtOnce);
  const int64_t count = batch.count();
  std::vector<pipe::MicroBatch> drawn = draw(source, count, "train_batch");
  std::vector<InFlight> in_flight(static_cast<size_t>(count));
  for (size_t i = 0; i < drawn.size(); ++i) in_flight[i].drawn = std::move(drawn[i]);
  loss_sum_.reset();
  first_micro_batch_ = engine_.micro_steps();
  for (const Action& action : actions_of(ranks_.settings().pipe_schedule, stage_.index(), stage_.count(), count)) {
    InFlight& one = in_flight[static_cast<size_t>(action.micro_batch)];
    if (action.kind == Action::kForward) {
      forward(batch, action.micro_batch, one);
    } else {
      backward(batch, action.micro_batch, one);
      one = {};
      batch.end_micro_batch();
    }
  }
  if (forward_lane_) {
    forward_lane_->finish();
    backward_lane_->finish();
  }
  return mean_over_ranks(loss_sum_.defined() ? loss_sum_.item<double>() : 0, count);
}

pipe::EvalResult Driver::evaluate(const pipe::Source& source, const pipe::EvalOptions& options) {
  const int64_t count = options.num_micro_batches.value_or(engine_.gradient_accumulation_steps());
  if (count < 1)
    throw Error(ErrorCode::kArgument, formatted("eval_batch() was asked for {} micro-batches", count), "ask for 1 at least");
  const auto call = ranks_.process_group->world()->enter(*ranks_.world_group, "eval_batch", engine_.global_steps(), "",
                                                         control::Watch::Call::kAtOnce);
  std::vector<pipe::MicroBatch> drawn = draw(source, count, "eval_batch");
  const at::NoGradGuard no_grad;
  pipe::EvalResult result;
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    std::vector<bool> unused;
    Wire inputs = stage_.is_first() ? std::move(drawn[static_cast<size_t>(i)].inputs) : receive_inputs(i, unused), outputs;
    at::Tensor loss;
    evaluate_forward(engine_, [&] {
      outputs = stage_.run(inputs, i);
      if (stage_.is_last() && options.compute_loss) loss = stage_.loss(outputs, drawn[static_cast<size_t>(i)].labels);
    });
    if (!stage_.is_last()) {
      forward_lane_->send(stage_.index() + 1, i, outputs);
      continue;
    }
    if (loss.defined()) {
      result.losses.push_back(loss.item<double>());
      sum += result.losses.back();
    }
    if (options.return_logits) result.logits.push_back(std::move(outputs));
  }
  if (forward_lane_) forward_lane_->finish();
  if (!options.compute_loss || options.reduce_output == pipe::EvalOptions::Reduce::kNone) return result;
  const double mean = mean_over_ranks(sum, count);
  if (options.bcast_loss || stage_.is_last()) result.loss = mean;
  result.losses.clear();
  return result;
}

}  // namespace gannet::pipeline
