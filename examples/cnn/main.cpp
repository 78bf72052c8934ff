// A small convolutional network learns to classify ten noisy shapes: Gannet's training loop from
// end to end, short enough to read in a minute.
//
//   cnn                                                  one process, fp32, about 10 s on two cores
//   cnn --deepspeed_config ds_config_bf16.json           the same in bf16
//   cnn --epochs 10 --set optimizer.params.lr=1e-3       any config value from the command line
//   gannet run --num_procs 2 cnn                         two processes that share each batch
//   cnn --checkpoint run1                                saves in run1 after each epoch and on SIGTERM; resumes
//                                                      from there when started again
//
// ds_config_bf16.json also sets data_types.buffer_dtype to bf16, because BatchNorm2d rejects 16-bit
// images if its statistics are fp32.
#include <gannet/gannet.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "shapes.h"

namespace {

struct CnnImpl : torch::nn::Module {
  CnnImpl() {
    auto block = [](int64_t in, int64_t out) {
      return torch::nn::Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).padding(1).bias(false)),
                                   torch::nn::BatchNorm2d(out), torch::nn::ReLU(), torch::nn::MaxPool2d(2));
    };
    features = register_module("features", torch::nn::Sequential());
    features->extend(*block(1, 8));    // 20 x 20 -> 10 x 10
    features->extend(*block(8, 16));   // -> 5 x 5
    features->extend(*block(16, 32));  // -> 2 x 2
    classes = register_module("classes", torch::nn::Linear(32 * 2 * 2, Shapes::kClasses));
  }

  // Maps images [batch, 1, 20, 20] to logits [batch, 10].
  torch::Tensor forward(const torch::Tensor& images) {
    return classes(features->forward(images.to(classes->weight.dtype())).flatten(1));  // the config chooses the weights' type
  }

  torch::nn::Sequential features{nullptr};
  torch::nn::Linear classes{nullptr};
};
TORCH_MODULE(Cnn);

int train(int argc, char** argv) {
  auto arguments = gannet::take_config_arguments(argc, argv);  // --deepspeed_config FILE, --set KEY=VALUE
  int64_t epochs = 5, checkpoint_every = 0;                    // in steps; 0: at the end of each epoch
  std::string checkpoint;
  CLI::App app("a small convolutional net learns to tell ten noisy shapes apart", "cnn");
  app.footer(gannet::ConfigArguments::help());
  app.add_option("--epochs", epochs, "passes over the images")->check(CLI::PositiveNumber)->capture_default_str();
  auto* folder = app.add_option("--checkpoint", checkpoint, "folder to save in after each epoch, and to resume from");
  app.add_option("--checkpoint-every", checkpoint_every, "steps between two saves, in place of an epoch")
      ->check(CLI::PositiveNumber)
      ->needs(folder);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;  // 0 after --help, 2 after an error
  }

  if (!checkpoint.empty()) gannet::check_folder(checkpoint);  // fails now rather than at the first save

  torch::manual_seed(1);
  Cnn model;
  if (arguments.config.empty()) arguments.config = CNN_DEFAULT_CONFIG;
  if (arguments.estimate) {
    std::cout << gannet::estimate(*model, arguments.whole_config(), {.ranks = *arguments.estimate});
    return 0;
  }
  auto [engine, optimizer, loader, scheduler] = gannet::initialize(
      model, {.config = arguments.config, .overwrite = arguments.overrides, .training_data = Shapes(4000, /*seed=*/1)});
  auto held_out = gannet::make_loader(gannet::Dataset<>(Shapes(1000, /*seed=*/2)),
                                      {.batch_size = 250, .shuffle = false, .device = engine->device()});

  std::optional<gannet::StopSignals> stop;
  if (!checkpoint.empty()) {
    stop.emplace();  // from here on, SIGTERM and SIGUSR1 are stop requests
    engine->load_checkpoint(checkpoint, {.if_present = true});
  }

  for (int64_t epoch = loader->cursor().epoch; epoch < epochs; ++epoch) {  // the cursor is restored from the checkpoint
    engine->train();
    torch::Tensor total_loss = torch::zeros({}, engine->device());
    int64_t batches = 0;
    for (auto& batch : *loader) {
      auto loss = torch::cross_entropy_loss(engine->forward(batch.data).to(torch::kFloat), batch.target);
      engine->backward(loss);
      const bool is_step = engine->step().boundary;  // otherwise gradients are accumulated
      total_loss += loss.detach();
      ++batches;
      if (is_step && checkpoint_every > 0 && engine->global_steps() % checkpoint_every == 0) engine->save_checkpoint(checkpoint);
      if (is_step && stop && stop->requested_on_any(*engine)) {
        engine->save_checkpoint(checkpoint);
        return gannet::kStoppedExitCode;
      }
    }
    if (!checkpoint.empty()) engine->save_checkpoint(checkpoint);

    engine->eval();
    torch::NoGradGuard no_grad;
    int64_t correct = 0, seen = 0;
    for (auto& batch : *held_out) {
      correct += (engine->forward(batch.data).argmax(1) == batch.target).sum().item<int64_t>();
      seen += batch.target.size(0);
    }

    // All ranks compute the means; rank 0 prints them.
    const double loss = engine->mean(total_loss.item<double>() / static_cast<double>(batches));
    const double accuracy = engine->mean(100.0 * static_cast<double>(correct) / static_cast<double>(seen));
    if (engine->rank() == 0)
      std::cout << "epoch " << epoch + 1 << ": train loss " << loss << ", held-out accuracy " << accuracy << " %" << std::endl;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return train(argc, argv);
  } catch (const std::exception& error) {  // an exception from Gannet or from LibTorch
    const auto ours = gannet::error_of(error);
    std::cerr << "cnn: " << (ours ? ours->what() : error.what()) << '\n';
    return ours ? ours->exit_code() : 1;
  }
}
