// Writes a checkpoint of a small run in the format that this tree writes, for data/format<N>: before the format changes, so that
// checkpoints in users' hands are still read afterwards.
//   cmake --build build --target write_fixture && build/bin/gannet run --num_procs 2 build/tests/write_fixture FOLDER
// FOLDER/boundary is saved after two steps, FOLDER/between inside the third; expected.safetensors has every tensor whole.
#include <gannet/safetensors.h>

#include <filesystem>
#include <iostream>

#include "checkpoint/checkpoint.h"
#include "engine/models.h"
#include "fixture_model.h"

int main(int argc, char** argv) {
  using namespace gannet;
  if (argc != 2) return 2;
  const std::string folder = argv[1];
  try {
    auto world = init_distributed({.timeout_seconds = 60});
    auto net = test::make_fixture_net(1);
    auto engine = initialize(net, {.config = test::fixture_config()}).engine;
    engine->add_state("counter", [rank = world->rank()] { return Value(static_cast<int64_t>(10 + rank)); }, [](const Value&) {});
    for (int64_t micro = 0; micro < 5; ++micro) {
      if (micro == 4) {
        ClientState client{Dict{{"note", "a fixture"}}, {{"seen", torch::arange(6).view({2, 3})}}};
        engine->save_checkpoint(folder, {.tag = "boundary", .client_state = client});
      }
      auto [x, y] = test::make_batch(micro * world->size() + world->rank(), 4);
      engine->backward(engine->forward(x, y));
      engine->step();
    }
    engine->save_checkpoint(folder, {.tag = "between"});
    if (world->rank() == 0) {
      for (const char* tag : {"boundary", "between"}) {
        const auto opened = checkpoint::open(folder, {.tag = tag});
        NamedTensors tensors;
        for (const auto& info : opened.tensors()) {
          at::Tensor tensor = torch::empty(info.shape, info.dtype);
          opened.read({{info.name, 0, tensor}});
          tensors.emplace_back(info.name, tensor);
        }
        save_safetensors(folder + "/" + tag + "/expected.safetensors", tensors);
      }
    }
    world->barrier();
  } catch (const Error& error) {
    std::cerr << error.what() << '\n';
    return error.exit_code();
  }
}
