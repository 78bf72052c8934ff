// Trains from queues of uneven length, joined; rank 0 writes the final parameters.
//   join_ranks OUT ACCUMULATION [resume]
// On one rank it plays both: each micro-batch is the mean of the losses of those that still have data. `resume`: the epoch is
// cut in two, at a place where one rank is out of data already, and goes on from a saved cursor.
#include <fstream>
#include <iostream>
#include <thread>

#include "engine/models.h"

namespace {

using namespace gannet::test;

constexpr int64_t kMicroBatch = 2;
constexpr int64_t kMicroBatches[] = {3, 8};  // of rank 0 and rank 1

void push_samples(gannet::SampleQueue<gannet::Example>& queue, int64_t rank) {
  for (int64_t i = queue.position(); i < kMicroBatch * kMicroBatches[rank]; ++i) {
    auto [x, y] = make_batch(100 * rank + i / kMicroBatch, kMicroBatch);
    if (!queue.push({x[i % kMicroBatch], y[i % kMicroBatch]})) break;
  }
  queue.close();
}

// `limit` steps of the epoch, from `cursor` where there is one; returns where it stopped.
template <class Engine>
gannet::DataCursor train_joined(Engine& engine, int64_t limit, const gannet::DataCursor* cursor) {
  const int64_t rank = engine.rank();
  gannet::SampleQueue<gannet::Example> queue(3);
  auto loader = gannet::make_loader<gannet::Example>(queue, engine.loader_options());
  if (cursor) loader->seek(*cursor);
  std::thread producer([&] { push_samples(queue, rank); });
  auto [x, y] = make_batch(0, kMicroBatch);
  gannet::Join join(engine, *loader, {.spare = std::make_shared<gannet::Example>(x, y)});
  for (int64_t step = 0; step < limit; ++step) {
    auto* batch = join.next();
    if (!batch) break;
    auto loss = engine.forward(batch->data, batch->target);
    engine.backward(loss * join.scale());
    engine.step();
  }
  gannet::DataCursor stopped = loader->cursor();
  loader.reset();  // wakes its producer if it waits
  producer.join();
  return stopped;
}

template <class Engine>
void train_alone(Engine& engine) {
  for (int64_t micro = 0; micro < std::max(kMicroBatches[0], kMicroBatches[1]); ++micro) {
    at::Tensor sum;
    int64_t active = 0;
    for (int64_t rank = 0; rank < 2; ++rank) {
      if (micro >= kMicroBatches[rank]) continue;
      auto [x, y] = make_batch(100 * rank + micro, kMicroBatch);
      const at::Tensor loss = engine.forward(x, y);
      sum = sum.defined() ? sum + loss : loss;
      ++active;
    }
    engine.backward(sum / static_cast<double>(active));
    engine.step();
  }
}

void train(const std::string& out, int64_t accumulation, bool resume) {
  const gannet::Dict config =
      config_with({{"train_micro_batch_size_per_gpu", kMicroBatch}, {"gradient_accumulation_steps", accumulation}});
  auto world = gannet::init_distributed({.timeout_seconds = 60});
  auto net = make_net();
  auto engine = gannet::initialize(net, {.config = config}).engine;
  if (world->size() == 1) {
    train_alone(*engine);
  } else if (resume) {
    const gannet::DataCursor stopped = train_joined(*engine, 5, nullptr);
    train_joined(*engine, 100, &stopped);
  } else {
    train_joined(*engine, 100, nullptr);
  }
  if (world->rank() != 0) return;
  const at::Tensor parameters = flat_parameters(*net).contiguous();
  std::ofstream(out, std::ios::binary)
      .write(static_cast<const char*>(parameters.data_ptr()), static_cast<std::streamsize>(parameters.nbytes()));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    train(argv[1], std::stoll(argv[2]), argc > 3);
  } catch (const gannet::Error& error) {
    std::cerr << error.what() << '\n';
    return error.exit_code();
  }
}
