// A small convolutional net learns to tell ten noisy shapes apart: Gannet's loop from end to end, to be read in a minute.
//
//   cnn                                                  one process, fp32, about 10 s on two cores
//   cnn --deepspeed_config ds_config_bf16.json           the same in bf16
//   cnn --epochs 10 --set optimizer.params.lr=1e-3       any value of the config from the command line
//   gannet run --num_procs 2 cnn                         two processes that share each batch
//
// ds_config_bf16.json sets data_types.buffer_dtype to bf16 too: BatchNorm2d refuses 16-bit images beside fp32 statistics.
#include <gannet/gannet.h>
#include <torch/torch.h>

#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
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

  // images [batch, 1, 20, 20] -> logits [batch, 10]
  torch::Tensor forward(const torch::Tensor& images) {
    return classes(features->forward(images.to(classes->weight.dtype())).flatten(1));  // the config chooses the weights' type
  }

  torch::nn::Sequential features{nullptr};
  torch::nn::Linear classes{nullptr};
};
TORCH_MODULE(Cnn);

int train(int argc, char** argv) {
  auto arguments = gannet::take_config_arguments(argc, argv);  // --deepspeed_config FILE, --set KEY=VALUE
  int epochs = 5;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--epochs" && i + 1 < argc) {
      epochs = std::atoi(argv[++i]);
    } else {
      std::cerr << "usage: cnn [--epochs N]\n" << gannet::ConfigArguments::help();
      return 2;
    }
  }

  torch::manual_seed(1);
  Cnn model;
  auto [engine, optimizer, loader, scheduler] =
      gannet::initialize(model, {.config = arguments.config.empty() ? CNN_DEFAULT_CONFIG : arguments.config,
                                 .overwrite = arguments.overrides,
                                 .training_data = Shapes(4000, /*seed=*/1)});
  auto held_out = gannet::make_loader(gannet::Dataset<>(Shapes(1000, /*seed=*/2)),
                                      {.batch_size = 250, .shuffle = false, .device = engine->device()});

  for (int epoch = 1; epoch <= epochs; ++epoch) {
    engine->train();
    torch::Tensor total_loss = torch::zeros({}, engine->device());
    for (auto& batch : *loader) {
      auto loss = torch::cross_entropy_loss(engine->forward(batch.data).to(torch::kFloat), batch.target);
      engine->backward(loss);
      engine->step();
      total_loss += loss.detach();
    }

    engine->eval();
    torch::NoGradGuard no_grad;
    int64_t correct = 0, seen = 0;
    for (auto& batch : *held_out) {
      correct += (engine->forward(batch.data).argmax(1) == batch.target).sum().item<int64_t>();
      seen += batch.target.size(0);
    }

    // Every rank asks for the means; one prints them.
    const double loss = engine->mean(total_loss.item<double>() / static_cast<double>(loader->size()));
    const double accuracy = engine->mean(100.0 * static_cast<double>(correct) / static_cast<double>(seen));
    if (engine->rank() == 0)
      std::cout << "epoch " << epoch << ": train loss " << loss << ", held-out accuracy " << accuracy << " %" << std::endl;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return train(argc, argv);
  } catch (const gannet::Error& error) {
    std::cerr << "cnn: " << error.what() << '\n';
    return error.exit_code();
  } catch (const std::exception& error) {  // LibTorch's
    std::cerr << "cnn: " << error.what() << '\n';
    return 1;
  }
}
