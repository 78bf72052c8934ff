// Trains a small GPT-2 with the Trainer, on text from this machine.
//
//   trainer --output_dir out --max_steps 100
//   gannet run --num_procs 2 trainer --output_dir out --eval_strategy epoch --save_strategy epoch --resume_from_checkpoint last
//   trainer --help
#include <ATen/Context.h>
#include <gannet/trainer.h>
#include <torch/data/example.h>

#include <iostream>

#include "data.h"
#include "model.h"

namespace {

constexpr int64_t kLength = 64;

std::vector<gannet::Example> samples_of(const gpt2::Tokens& tokens) {
  std::vector<gannet::Example> samples;
  for (int64_t i = 0; i < tokens.size() / kLength; ++i) {
    const gpt2::Batch one = tokens.batch(i, 1, kLength);
    samples.emplace_back(one.inputs[0], one.targets[0]);
  }
  return samples;
}

gannet::Metrics accuracy(const gannet::EvalPrediction& prediction) {
  return {{"accuracy", prediction.predictions.eq(prediction.label_ids).to(at::kDouble).mean().item<double>()}};
}

int run(int argc, char** argv) {
  auto arguments = gannet::parse_training_arguments(argc, argv);
  at::manual_seed(arguments.seed);
  gpt2::Gpt model(gpt2::GptOptions{.positions = kLength, .width = 64, .layers = 2});
  const auto [train, held_out] = gpt2::Tokens::from_this_machine().split(0.05);

  gannet::Trainer trainer(
      model, arguments,
      {.train_dataset = samples_of(train),
       .eval_dataset = samples_of(held_out),
       .compute_metrics = accuracy,
       .preprocess_logits_for_metrics = [](const at::Tensor& logits, const at::Tensor&) { return logits.argmax(-1); }});
  const auto output = trainer.train();
  const auto metrics = trainer.evaluate();
  trainer.save_model();
  trainer.save_state();
  if (trainer.state().is_world_process_zero)
    std::cout << output.global_step << " updates, training loss " << output.training_loss << ", evaluation loss "
              << metrics.at("eval_loss") << ", accuracy " << metrics.at("eval_accuracy") << '\n';
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    const auto ours = gannet::error_of(error);
    std::cerr << "trainer: " << (ours ? ours->what() : error.what()) << '\n';
    return ours ? ours->exit_code() : 70;
  }
}
