// Pipeline schedules in real time: layers that sleep for each forward, input pass and weight pass,
// trained by the pipeline engine. Sleeping layers need no core, so that a small machine shows what
// the order alone costs.
//
//   gannet run --num_procs 4 build/bench/schedule_clock [--unit-ms 40] [--micro-batches 8] [--steps 5]
//
// Prints, for each schedule, the shortest step in units, the simulator's step, and each rank's peak
// number of activations, counted during the run. A rank's layers take one unit per pass, however
// many parts the rank has. A step runs from the start of its first pass to the end of its last, on
// any rank: the update is left out.
#include <ATen/ops/ones.h>
#include <gannet/gannet.h>
#include <gannet/pipe.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/format.h"
#include "pipeline/built_in.h"
#include "pipeline/simulate.h"

namespace {

double unit_ms = 40;
double alive = 0, most_alive = 0;  // micro-batches with activations on this rank

using Clock = std::chrono::steady_clock;  // the same for all processes on a machine
Clock::time_point first_begin, last_end;  // span of this rank's passes; first_begin zero: none yet

// Wakes early and polls the clock: a sleep alone overshoots by 0.2 ms, and sometimes by much more.
void sleep_for(double units) {
  const auto begin = Clock::now();
  if (first_begin == Clock::time_point()) first_begin = begin;
  const auto until =
      begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(units * unit_ms));
  std::this_thread::sleep_until(until - std::chrono::microseconds(1000));
  while ((last_end = Clock::now()) < until) std::this_thread::yield();
}

// Multiplies by a weight; each pass takes `share` units.
struct Sleeps : torch::autograd::Function<Sleeps> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            double share) {
    sleep_for(share);
    alive += share;
    most_alive = std::max(most_alive, alive);
    context->save_for_backward({x, weight});
    context->saved_data["share"] = share;
    return x * weight;
  }
  static std::vector<at::Tensor> backward(torch::autograd::AutogradContext* context, const std::vector<at::Tensor>& gradients) {
    const auto saved = context->get_saved_variables();
    const double share = context->saved_data["share"].toDouble();
    std::vector<at::Tensor> computed(3);
    if (context->needs_input_grad(0)) {
      sleep_for(share);
      computed[0] = gradients[0] * saved[1];
    }
    if (context->needs_input_grad(1)) {
      // The model's inputs need no gradient, yet the first layer must take as long as the others.
      sleep_for(saved[0].requires_grad() ? share : 2 * share);
      alive -= share;
      computed[1] = gradients[0] * saved[0];
    }
    return computed;
  }
};

// Returns a step's duration in seconds, over all ranks.
double length_of_step(gannet::ProcessGroup& world) {
  const double own[] = {std::chrono::duration<double>(first_begin.time_since_epoch()).count(),
                        std::chrono::duration<double>(last_end.time_since_epoch()).count()};
  double begin = own[0], end = own[1];
  for (const std::string& bytes : world.gather({reinterpret_cast<const char*>(own), sizeof own})) {
    double other[2];
    std::memcpy(other, bytes.data(), sizeof other);
    begin = std::min(begin, other[0]);
    end = std::max(end, other[1]);
  }
  return end - begin;
}

struct SleepingImpl : torch::nn::Module {
  explicit SleepingImpl(double share) : share(share) { weight = register_parameter("weight", at::ones({4})); }
  at::Tensor forward(const at::Tensor& x) { return Sleeps::apply(x, weight, share); }
  double share;
  at::Tensor weight;
};

void run(const std::string& name, uint32_t stages, int64_t micro_batches, int steps) {
  namespace pipeline = gannet::pipeline;
  const pipeline::Schedule schedule = pipeline::built_in(name, {stages, micro_batches, {}});
  const size_t chunks = schedule.parts() / stages;
  std::vector<gannet::Layer> layers;
  std::vector<size_t> bounds{0};
  for (size_t part = 0; part < schedule.parts(); ++part) {
    layers.push_back(
        gannet::layer_of("layer" + std::to_string(part), std::make_shared<SleepingImpl>(1.0 / static_cast<double>(chunks))));
    bounds.push_back(part + 1);
  }
  gannet::Dict config{{"train_micro_batch_size_per_gpu", 1},
                      {"gradient_accumulation_steps", micro_batches},
                      {"optimizer", gannet::Dict{{"type", "SGD"}, {"params", gannet::Dict{{"lr", 1e-6}}}}},
                      {"steps_per_print", 1000000},
                      {"gannet", gannet::Dict{{"pipeline", gannet::Dict{{"schedule", name}}}}}};
  const auto engine =
      gannet::initialize(
          gannet::pipe::Module(layers,
                               {.num_stages = stages, .loss_fn = [](const at::Tensor& x) { return x.sum(); }, .bounds = bounds}),
          {.config = config})
          .engine;
  const auto world = gannet::init_distributed();
  double best = 1e9;
  alive = most_alive = 0;
  for (int step = 0; step < steps; ++step) {
    world->barrier();
    first_begin = Clock::time_point();
    engine->train_batch([] { return gannet::pipe::MicroBatch{{at::ones({4})}, {}}; });
    best = std::min(best, 1e3 * length_of_step(*world) / unit_ms);
  }
  pipeline::Times times = even_times(schedule, {});
  times.of_part[0].weight += times.of_part[0].input;  // the first part computes no input gradient
  times.of_part[0].input = 0;
  const pipeline::SimulatedStep simulated = simulate(schedule, times);
  for (uint32_t rank = 0; rank < stages; ++rank) {
    world->barrier();
    if (world->rank() != rank) continue;
    if (rank == 0)
      std::printf("%-15s %6.2f measured, %5.2f simulated, %+5.1f%%; most alive (measured/simulated):", name.c_str(), best,
                  simulated.total, 100 * (best / simulated.total - 1));
    std::printf(" %.1f/%.1f", most_alive, simulated.peaks[rank]);
    if (rank + 1 == stages) std::printf("\n");
    std::fflush(stdout);
  }
  world->barrier();
}

}  // namespace

int main(int argc, char** argv) {
  int64_t micro_batches = 8;
  int steps = 5;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--unit-ms") == 0) unit_ms = std::stod(argv[i + 1]);
    if (std::strcmp(argv[i], "--micro-batches") == 0) micro_batches = std::stoll(argv[i + 1]);
    if (std::strcmp(argv[i], "--steps") == 0) steps = std::stoi(argv[i + 1]);
  }
  const auto world = gannet::init_distributed();
  if (world->rank() == 0)
    std::printf("%u ranks, %ld micro-batches, unit %.0f ms, shortest of %d steps\n", world->size(), micro_batches, unit_ms,
                steps);
  for (const char* name : {"gpipe", "1f1b", "interleaved", "zb-h1", "interleaved-zb", "zb-v", "dualpipe-v"})
    run(name, world->size(), micro_batches, steps);
}
