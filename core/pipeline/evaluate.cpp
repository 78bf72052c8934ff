// Evaluations: forwards only, in the order of the chunks.
#include <ATen/core/grad_mode.h>
#include <gannet/error.h>

#include <algorithm>

#include "base/format.h"
#include "control/world.h"
#include "pipeline/driver.h"

namespace gannet::pipeline {

// Sends the last stage's losses to all stages. Ranks along the data axis have different losses.
std::vector<double> Driver::of_last_stage(const std::vector<double>& losses, int64_t count) {
  const auto own = static_cast<size_t>(count) * ranks_.comm->rank();
  std::vector<double> all(static_cast<size_t>(count) * ranks_.comm->size());
  if (last_chunk().is_last() && ranks_.mesh->is_first_replica())
    std::copy(losses.begin(), losses.end(), all.begin() + static_cast<std::ptrdiff_t>(own));
  ranks_.world_group->all_reduce(all.data(), all.size());
  return {all.begin() + static_cast<std::ptrdiff_t>(own), all.begin() + static_cast<std::ptrdiff_t>(own) + count};
}

pipe::EvalResult Driver::evaluate(const pipe::Source& source, const pipe::EvalOptions& options) {
  const int64_t count = options.num_micro_batches.value_or(engine_.gradient_accumulation_steps());
  if (count < 1)
    throw Error(ErrorCode::kArgument, formatted("eval_batch() was asked for {} micro-batches", count), "ask for 1 at least");
  const auto call = ranks_.process_group->world()->enter(*ranks_.world_group, "eval_batch", engine_.global_steps(), "",
                                                         control::Watch::Call::kAtOnce);
  std::vector<pipe::MicroBatch> drawn = draw(source, count, "eval_batch", /*trains=*/false);
  const at::NoGradGuard no_grad;
  pipe::EvalResult result;
  double sum = 0;
  std::vector<Action> forwards;
  for (const Stage& chunk : chunks_)
    for (int64_t i = 0; i < count; ++i) forwards.push_back({Action::kForward, chunk.part(), i});
  expect_messages(forwards);
  std::vector<Wire> from_previous(static_cast<size_t>(count));  // if the previous part is on this stage
  for (const Stage& chunk : chunks_)
    for (int64_t i = 0; i < count; ++i) {
      const auto place = static_cast<size_t>(i);
      std::vector<bool> unused;
      Wire inputs, outputs;
      if (chunk.is_first())
        inputs = std::move(drawn[place].inputs);
      else if (chunk.previous_stage() == chunk.index())
        inputs = std::move(from_previous[place]);
      else
        inputs = receive_inputs(chunk, i, unused);
      at::Tensor loss;
      evaluate_forward(engine_, [&] {
        outputs = chunk.run(inputs, i);
        if (chunk.is_last() && options.compute_loss) loss = chunk.loss(outputs, drawn[place]);
      });
      if (!chunk.is_last()) {
        if (chunk.next_stage() == chunk.index())
          from_previous[place] = std::move(outputs);
        else
          send_outputs(chunk, i, outputs);
        continue;
      }
      if (loss.defined()) {
        result.losses.push_back(loss.item<double>());
        sum += result.losses.back();
      }
      if (options.return_logits) result.logits.push_back(std::move(outputs));
    }
  if (forward_lane_) forward_lane_->finish();
  if (!options.compute_loss) return result;
  if (options.reduce_output == pipe::EvalOptions::Reduce::kNone) {
    if (options.bcast_loss) result.losses = of_last_stage(result.losses, count);
    return result;
  }
  const double mean = mean_over_ranks(sum, count);
  if (options.bcast_loss || last_chunk().is_last()) result.loss = mean;
  result.losses.clear();
  return result;
}

}  // namespace gannet::pipeline
