#include "faults/trains.h"

#include <dlfcn.h>
#include <gannet/gannet.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <thread>

#include "control/world.h"
#include "zero/support.h"

namespace gannet::test {
namespace {

using namespace std::chrono_literals;

constexpr int64_t kFaultyStep = 3;

struct EarlyEnd : std::runtime_error {
  EarlyEnd() : std::runtime_error("this rank has had enough") {}
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// One clock for all ranks of a machine.
std::string moment_file() { return variable("FOLDER") + ".moment"; }

void note_the_moment() {
  if (!variable("FOLDER").empty()) std::ofstream(moment_file()) << std::fixed << now();
}

uint64_t hash_of(const at::Tensor& tensor) {  // FNV-1a
  uint64_t hash = 14695981039346656037u;
  const auto* bytes = static_cast<const unsigned char*>(tensor.const_data_ptr());
  for (size_t i = 0; i < tensor.nbytes(); ++i) hash = (hash ^ bytes[i]) * 1099511628211u;
  return hash;
}

Dict config_of_run() {
  Dict config = config_with({{"train_micro_batch_size_per_gpu", 2}});
  const std::string deadline = variable("DEADLINE");
  config["gannet"] = Dict{{"deadline_seconds", deadline.empty() ? 3.0 : std::atof(deadline.c_str())},
                          {"checkpoint", Dict{{"async", !variable("ASYNC").empty()}}}};
  const std::string stage = variable("STAGE"), tier = variable("TIER"), drive = variable("DRIVE");
  if (stage.empty()) return config;
  Dict zero{{"stage", std::atoi(stage.c_str())}, {"sub_group_size", 8192}};
  if (stage == "3") zero["stage3_param_persistence_threshold"] = 0;
  if (!tier.empty()) {
    zero["offload_optimizer"] = Dict{{"device", tier}, {"nvme_path", drive}};
    if (stage == "3") zero["offload_param"] = Dict{{"device", tier}, {"nvme_path", drive}, {"max_in_cpu", 0}};
  }
  config["zero_optimization"] = zero;
  return config;
}

void train_with_a_fault() {
  auto world = init_distributed({.timeout_seconds = 30});
  world->world()->watch()->set_report_every(1s);
  const bool is_victim = std::to_string(world->rank()) == variable("VICTIM");
  const std::string where = variable("WHERE"), folder = variable("FOLDER");
  const bool saves = where == "save" || where == "load" || !variable("SAVES").empty();
  const auto strikes = [&](const char* phase, int64_t step) { return is_victim && where == phase && step == kFaultyStep; };
  const int64_t width = variable("WIDTH").empty() ? 16 : std::atoll(variable("WIDTH").c_str());
  auto engine = initialize(make_net(1, width), {.config = config_of_run(), .lr_scheduler = LrSchedule([&](int64_t step) {
                                                                             if (strikes("step", step)) fault();
                                                                             return 1e-3;
                                                                           })})
                    .engine;
  engine->add_state(
      "a fault",
      [&]() -> Value {
        if (strikes("save", engine->global_steps())) fault();
        return 0;
      },
      [&](const Value&) {
        if (strikes("load", kFaultyStep)) fault();
      });
  if (!variable("RESUME").empty()) engine->load_checkpoint(folder);
  for (int64_t step = engine->global_steps() + 1; step <= 2 * kFaultyStep; ++step) {
    auto [x, y] = make_batch(step * world->size() + world->rank(), 2);
    std::this_thread::sleep_for(20ms);
    if (strikes("forward", step)) {
      std::this_thread::sleep_for(300ms);
      fault();
    }
    at::Tensor loss = engine->forward(x, y);
    if (strikes("backward", step)) loss.register_hook([](const at::Tensor&) { fault(); });
    if (strikes("reduce", step)) engine->module()->first->weight.register_hook([](const at::Tensor&) { fault(); });
    engine->backward(loss);
    if (strikes("update", step)) fault();
    engine->step();
    if (saves && step >= kFaultyStep - 1) engine->save_checkpoint(folder);
    if (where == "load" && step == kFaultyStep) engine->load_checkpoint(folder);
    if (where != "barrier" || step != kFaultyStep) continue;
    if (!is_victim) std::this_thread::sleep_for(700ms);
    if (strikes("barrier", step) && variable("FAULT") == "return") return note_the_moment();
    std::thread striker([is_victim] {  // outlives this function where the barrier throws
      std::this_thread::sleep_for(300ms);
      if (is_victim) fault();
    });
    striker.detach();
    world->barrier();
  }
  engine->wait_for_checkpoint();
  const uint64_t hash = hash_of(parameters_of(*engine));
  if (world->rank() == 0) std::cout << "parameters " << hash << std::endl;
}

}  // namespace

void fault() {
  const std::string kind = variable("FAULT");
  if (kind.empty()) return;
  note_the_moment();
  if (kind == "kill") raise(SIGKILL);
  if (kind == "stop") raise(SIGSTOP);
  if (kind == "return") throw EarlyEnd();
  if (kind != "io") return;
  auto* const begin = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "gannet_faults_begin"));
  if (!begin) throw std::runtime_error("FAULT is io, and LD_PRELOAD names no library of faults");
  begin();
}

double seconds_to_the_error(const std::string& output) {
  const std::string mark = "told after ";
  const size_t at = output.find(mark);
  return at == std::string::npos ? 1e9 : std::atof(output.c_str() + at + mark.size());
}

RANK_BODY(trains) {
  try {
    train_with_a_fault();
  } catch (const Error&) {
    double moment = 0;
    if (std::ifstream(moment_file()) >> moment) std::cout << "told after " << now() - moment << " s" << std::endl;
    throw;
  }
}

}  // namespace gannet::test
