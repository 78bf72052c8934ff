// A plugin that fails at its n-th call, for every n: the engine is at a step's beginning or says that it is torn, and a load of
// the checkpoint resumes bitwise. The faults are put into the tables of the real plugins, in memory.
#include <gannet/gannet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <iostream>

#include "comm/ranks.h"
#include "engine/impl.h"
#include "zero/support.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using ranks::expect;

struct Faults {
  bool counts = false;
  int64_t calls = 0, fails_at = 0;  // 0: never
  bool now() { return counts && ++calls == fails_at; }
  int32_t failed(gannet_error* error) {
    std::snprintf(error->message, error->capacity, "the fault of call %lld", static_cast<long long>(calls));
    return GANNET_IO_ERROR;
  }
} faults;

// The table of a loaded plugin is constant data of its file.
template <class Table>
Table& writable(const gannet::plugin::Plugin& plugin) {
  auto* table = static_cast<Table*>(const_cast<void*>(plugin.descriptor->api));
  const auto page = reinterpret_cast<uintptr_t>(table) & ~static_cast<uintptr_t>(4095);
  if (mprotect(reinterpret_cast<void*>(page), 8192, PROT_READ | PROT_WRITE) != 0) throw std::runtime_error("mprotect failed");
  return *table;
}

gannet_optimizer_api optimizer;
gannet_scheduler_api scheduler;
gannet_comm_api comm;
gannet_offload_api offload;

void put_faults(const std::string& kind, gannet::EngineBase::Impl& impl) {
  if (kind == "optimizer") {
    auto& table = writable<gannet_optimizer_api>(impl.groups[0].optimizer->plugin());
    optimizer = table;
    table.update = [](void* self, const gannet_update_args* args, gannet_error* error) {
      return faults.now() ? faults.failed(error) : optimizer.update(self, args, error);
    };
  } else if (kind == "scheduler") {
    auto& table = writable<gannet_scheduler_api>(impl.schedule.plugin()->plugin());
    scheduler = table;
    table.value = [](void* self, const gannet_schedule_query* query, gannet_schedule_value* value, gannet_error* error) {
      return faults.now() ? faults.failed(error) : scheduler.value(self, query, value, error);
    };
  } else if (kind == "comm") {
    auto& table = writable<gannet_comm_api>(impl.comm->comm().plugin());
    comm = table;
    table.collective = [](void* self, void* group, const gannet_collective_args* args, void** work, gannet_error* error) {
      return faults.now() ? faults.failed(error) : comm.collective(self, group, args, work, error);
    };
    table.work_wait = [](void* self, void* work, uint64_t timeout_ms, gannet_error* error) {
      const int32_t status = comm.work_wait(self, work, timeout_ms, error);
      return faults.now() ? faults.failed(error) : status;
    };
  } else {
    auto& table = writable<gannet_offload_api>(impl.state_tier->plugin());
    offload = table;
    table.read = [](void* self, void* region, uint64_t offset, void* buffer, uint64_t bytes, void** work, gannet_error* error) {
      return faults.now() ? faults.failed(error) : offload.read(self, region, offset, buffer, bytes, work, error);
    };
    table.write = [](void* self, void* region, uint64_t offset, const void* buffer, uint64_t bytes, void** work,
                     gannet_error* error) {
      return faults.now() ? faults.failed(error) : offload.write(self, region, offset, buffer, bytes, work, error);
    };
    table.work_wait = [](void* self, void* work, gannet_error* error) {
      const int32_t status = offload.work_wait(self, work, error);
      return faults.now() ? faults.failed(error) : status;
    };
  }
}

RANK_BODY(every_call_fails_once) {
  torch::set_num_threads(1);
  auto world = gannet::test::world();
  const std::string kind = variable("KIND"), folder = variable("FOLDER");
  const int64_t stage = std::stoll(variable("STAGE")), stride = std::stoll(variable("STRIDE"));
  Dict config = config_with({{"gradient_accumulation_steps", 2}, {"gradient_clipping", 0.5}});
  config["scheduler"] = Dict{{"type", "WarmupLR"}, {"params", Dict{{"warmup_max_lr", 1e-2}, {"warmup_num_steps", 10}}}};
  Dict zero{{"stage", stage}, {"stage3_param_persistence_threshold", 0}, {"reduce_bucket_size", 200}};
  if (kind == "offload") zero["offload_optimizer"] = Dict{{"device", "nvme"}, {"nvme_path", folder}};
  config["zero_optimization"] = zero;
  config["gannet"] = Dict{{"fingerprint_every", 1}};
  auto net = make_net();
  auto engine = gannet::initialize(net, {.config = config}).engine;
  put_faults(kind, engine->impl());

  const auto micro_batch = [&](int64_t index) {
    auto [x, y] = make_batch(index * world->size() + world->rank(), 4);
    faults.counts = true;
    try {
      engine->backward(engine->forward(x, y));
      engine->step();
    } catch (...) {
      faults.counts = false;
      throw;
    }
    faults.counts = false;
  };
  for (int64_t index = 0; index < 2; ++index) micro_batch(index);
  engine->save_checkpoint(folder + "/checkpoint");
  faults.calls = 0;
  std::vector<at::Tensor> after;  // each step
  for (int64_t index = 2; index < 8; ++index) {
    micro_batch(index);
    if (index % 2 == 1) after.push_back(parameters_of(*engine));
  }
  const int64_t calls = faults.calls;
  const at::Tensor expected = after.back();

  int64_t torn = 0, begun = 0;
  for (int64_t n = 1; n <= calls; n += stride) {
    engine->load_checkpoint(folder + "/checkpoint");
    faults.calls = 0;
    faults.fails_at = n;
    at::Tensor before;
    bool has_failed = false;
    for (int64_t index = 2; index < 8 && !has_failed; ++index) {
      if (index % 2 == 0) before = parameters_of(*engine);
      try {
        micro_batch(index);
      } catch (const gannet::Error& error) {
        has_failed = true;
        contains(error.what(), "the fault of call");
        if (std::string(error.what()).find(" had been taken: the parameters are whole") != std::string::npos)
          before = after.at(static_cast<size_t>(engine->global_steps() - 2));
      }
    }
    faults.fails_at = 0;
    expect(has_failed, "call " + std::to_string(n) + " of " + std::to_string(calls) + " failed");
    auto [x, y] = make_batch(50 + world->rank(), 4);
    std::string refused;
    try {
      engine->save_checkpoint(folder + "/torn", {.tag = "after"});
    } catch (const gannet::Error& error) {
      refused = error.what();
    }
    if (!refused.empty()) {
      contains(refused, "parameter values are undefined");
      contains(message_of([&, x = x, y = y] { engine->forward(x, y); }), "load_checkpoint()");
      ++torn;
    } else {
      expect(torch::equal(parameters_of(*engine), before),
             "call " + std::to_string(n) + ": the parameters are those of the step's beginning");
      ++begun;
    }
    engine->load_checkpoint(folder + "/checkpoint");
    for (int64_t index = 2; index < 8; ++index) micro_batch(index);
    expect(torch::equal(parameters_of(*engine), expected), "call " + std::to_string(n) + ": resumed bitwise");
  }
  std::cout << kind << " stage " << stage << ": " << calls << " calls, torn " << torn << ", at a beginning " << begun
            << std::endl;
}

void play(const std::string& kind, int count, const std::vector<int>& stages) {
  const bool is_full = !variable("GANNET_TEST_FULL").empty();
  for (const int stage : stages) {
    // On the build's own disk, which takes direct I/O.
    const auto folder = std::filesystem::current_path() / ("guest-faults-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder);
    const auto outcomes = ranks::run_ranks("every_call_fails_once", count,
                                           {.environment = {{"KIND", kind},
                                                            {"STAGE", std::to_string(stage)},
                                                            {"STRIDE", is_full ? "1" : "7"},
                                                            {"FOLDER", folder.string()}},
                                            .limit = std::chrono::seconds(600)});
    std::filesystem::remove_all(folder);
    ranks::expect_all_succeed(outcomes);
    const size_t at = outcomes[0].output.rfind(kind + " stage");
    if (at != std::string::npos) std::cout << outcomes[0].output.substr(at);
  }
}

TEST(Faults, OfAnOptimizer) {
  play("optimizer", 1, {0, 1, 2, 3});
  play("optimizer", 2, {0, 1, 2, 3});
}
TEST(Faults, OfASchedule) {
  play("scheduler", 1, {0, 3});
  play("scheduler", 2, {0, 1, 2, 3});
}
TEST(Faults, OfAComm) { play("comm", 2, {0, 1, 2, 3}); }
TEST(Faults, OfADrive) {
  play("offload", 1, {1, 3});
  play("offload", 2, {1, 2, 3});
}

}  // namespace
