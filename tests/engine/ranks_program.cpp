// One rank of the engine's tests over several processes: trains, and rank 0 writes the final parameters.
//   engine_ranks OUT ACCUMULATION STEPS [MODE] [FOLDER]
// MODE: plain, or one of the ways of driving the engine that must give the same parameters, or a mistake to be told.
#include <fstream>
#include <iostream>

#include "models.h"

namespace {

void train(const std::string& out, int64_t accumulation, int64_t steps, const std::string& mode, const std::string& folder) {
  using namespace gannet::test;
  gannet::Dict config = config_with(
      {{"train_micro_batch_size_per_gpu", 2}, {"gradient_accumulation_steps", accumulation}, {"gradient_clipping", 1.0}});
  config["zero_optimization"] = gannet::Dict{{"reduce_bucket_size", mode == "small_buckets" ? 40 : 500000000}};
  if (mode == "save_other_tags") config["checkpoint"] = gannet::Dict{{"tag_validation", "Fail"}};
  if (mode == "prescale") config["prescale_gradients"] = true;
  if (mode == "predivide") config["gradient_predivide_factor"] = 2.0;
  if (mode == "comm_fp16") config["communication_data_type"] = "fp16";
  const bool is_hostile = mode.starts_with("hostile_");
  if (is_hostile) {
    config["optimizer"] = gannet::Dict{{"type", "Ends"}, {"params", gannet::Dict{{"how", mode.substr(8)}}}};
    config["plugins"] = gannet::Dict{{"path", gannet::List{HOSTILE_FOLDER}}};
  }
  auto world = gannet::init_distributed({.timeout_seconds = mode == "hostile_alone" ? 3.0 : 60.0});
  // Ranks begin from different weights on purpose: the engine must broadcast rank 0's.
  auto net = make_net(1 + world->rank(), mode == "other_model" && world->rank() == 1 ? 20 : 16);
  if (mode == "overlap") config["optimizer"] = gannet::Dict{{"type", "SGD"}, {"params", gannet::Dict{{"lr", 0.05}}}};
  auto engine = gannet::initialize(net, {.config = config}).engine;
  if (mode == "resume") engine->load_checkpoint(folder);
  for (int64_t step = engine->global_steps(); step < steps; ++step) {
    for (int64_t a = 0; a < accumulation; ++a) {
      const int64_t index = (step * accumulation + a) * world->size() + world->rank();
      auto [x, y] = make_batch(index, 2);
      if (mode == "two_backwards") {
        const at::Tensor loss = engine->forward(x, y);
        engine->backward(loss * 0.25, {.retain_graph = true});
        engine->backward(loss * 0.75);
      } else if (mode == "no_sync") {
        {
          auto scope = engine->no_sync();
          engine->backward(engine->forward(x, y));
        }
        if (engine->is_gradient_accumulation_boundary()) engine->allreduce_gradients();
      } else if (mode == "forgotten_sync") {
        auto scope = engine->no_sync();
        engine->backward(engine->forward(x, y));
      } else {
        engine->backward(engine->forward(x, y));
      }
      engine->step();
    }
  }
  if (is_hostile && !folder.empty()) {
    std::cout << "receipt: " << engine->save_checkpoint(folder).warning << std::endl;
    engine->save_fp32_model(folder, "model.safetensors");
  }
  if (mode == "save") engine->save_checkpoint(folder);
  if (mode == "save_other_tags") engine->save_checkpoint(folder, {.tag = "tag" + std::to_string(world->rank())});
  if (world->rank() == 0) {
    const at::Tensor parameters = flat_parameters(*net).contiguous();
    std::ofstream(out, std::ios::binary)
        .write(static_cast<const char*>(parameters.data_ptr()), static_cast<std::streamsize>(parameters.nbytes()));
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    train(argv[1], std::stoll(argv[2]), std::stoll(argv[3]), argc > 4 ? argv[4] : "plain", argc > 5 ? argv[5] : "");
  } catch (const gannet::Error& error) {
    std::cerr << error.what() << '\n';
    return error.exit_code();
  }
}
