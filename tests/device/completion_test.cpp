// Version 3 of the Comm contract: completion by query and by stream, what is held until then, abort.
#include <gannet/error.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "comm/every_comm.h"
#include "comm/raw_group.h"
#include "control/world.h"
#include "device/accelerator.h"
#include "device/device_comm.h"
#include "interfaces/host.h"

namespace {

using namespace gannet::test;
using gannet::Error;
using gannet::ErrorCode;
using gannet::Work;
using ranks::expect;
using ranks::expect_all_succeed;
using ranks::run_ranks;
using ranks::same;
namespace collective = gannet::collective;

INSTANTIATE_TEST_SUITE_P(Completion, EveryComm, kPlugins, plugin_name);

RANK_BODY(completion) {
  const auto world = join();
  RawGroup group{world->links().device()};
  for (const bool message : {false, true}) {
    double value = 1;
    if (group.rank() == 1) world->barrier();  // by the host's group: the other rank has looked
    Work work = !message            ? group.all_reduce(&value, 1, GANNET_FLOAT64)
                : group.rank() == 0 ? group.start(collective::receive(&value, 1, GANNET_FLOAT64, 1))
                                    : group.start(collective::send(&value, 1, GANNET_FLOAT64, 0));
    if (group.rank() == 0) {
      expect(!work.is_over(), "it is not over while the other rank has not come");
      world->barrier();
    }
    for (int i = 0; i < 2000 && !work.is_over(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    expect(work.is_over(), "it is over some time");
    work.wait();
    expect(work.is_over(), "nothing is pending");
  }
  std::vector<float> values(1000, 1.f);
  Work work = group.all_reduce(values.data(), values.size(), GANNET_FLOAT32);
  work.block(nullptr);  // no stream: the host waits
  same(values[999], 2.f, "the sum");
}
TEST_P(EveryComm, AWorkTellsWhetherItIsOver) { run("completion", 2); }

RANK_BODY(streams) {
  const auto world = join();
  RawGroup group{world->links().device()};
  gannet::plugin::Registry registry({});
  const auto& plugin = registry.require(GANNET_KIND_ACCELERATOR, "fake", "");
  const gannet::Host host;
  gannet::Accelerator accelerator(plugin, gannet::plugin::parse_params(plugin, {{"delay_us", 20'000}, {"seed", 3}}, {}), host);
  const auto* api = accelerator.api();
  const auto ok = [](int32_t status) { same(status, int32_t{GANNET_OK}, "status"); };
  void* stream = nullptr;
  ok(api->queue_create(accelerator.self(), 0, "stream", &stream, nullptr));
  const std::vector<float> source(4096, 1.f + group.rank());
  std::vector<float> buffer(4096, -100.f), result(4096, -1.f);
  const size_t bytes = source.size() * sizeof(float);
  for (int round = 0; round < 5; ++round) {
    ok(api->queue_copy(accelerator.self(), stream, buffer.data(), source.data(), bytes, nullptr));
    Work work = group.group.start(collective::all_reduce(buffer.data(), buffer.size(), GANNET_FLOAT32), stream);
    work.block(stream);
    ok(api->queue_copy(accelerator.self(), stream, result.data(), buffer.data(), bytes, nullptr));
    void* event = nullptr;
    ok(api->event_record(accelerator.self(), stream, &event, nullptr));
    ok(api->event_wait(accelerator.self(), event, nullptr));
    api->event_destroy(accelerator.self(), event);
    for (const float value : result) same(value, 3.f, "a sum between two copies of a stream");
  }
  api->queue_destroy(accelerator.self(), stream);
}
TEST(FakeComm, ACollectiveBeginsAfterItsStreamAndTheStreamWaitsForIt) {
  expect_all_succeed(run_ranks("streams", 2, {.environment = {{"COMM", "fake"}}}));
}

// Tensors of a collective live until it is over: after wait(), after block() with a stream once it is, and behind an assignment.
RANK_BODY(holds) {
  const auto world = join();
  void* stream = nullptr;
  gannet::DeviceComm comm(world->links().device(), [&] { return stream; });
  const auto is_held = [](const at::Tensor& tensor) { return tensor.use_count() > 1; };
  const at::Tensor first = at::full({1000}, 1.0), second = at::full({1000}, 2.0);
  gannet::DeviceWork work = comm.all_reduce(first);
  expect(work.pending() && is_held(first), "a tensor in flight is held");
  work = comm.all_reduce(second);
  expect(!is_held(first), "behind an assignment the former collective is over");
  same(first[999].item<float>(), 2.f, "its sum");
  work.wait();
  expect(!is_held(second), "a tensor is given back");
  same(second[0].item<float>(), 4.f, "the second sum");

  gannet::plugin::Registry registry({});
  const auto& plugin = registry.require(GANNET_KIND_ACCELERATOR, "fake", "");
  const gannet::Host host;
  gannet::Accelerator accelerator(plugin, gannet::plugin::parse_params(plugin, {}, {}), host);
  same(accelerator.api()->queue_create(accelerator.self(), 0, "stream", &stream, nullptr), int32_t{GANNET_OK}, "a queue");
  if (world->rank() == 1) world->barrier();  // the other rank has looked
  work = comm.all_reduce(first);
  work.block();
  expect(!work.pending(), "the stream waits, and nobody else");
  if (world->rank() == 0) {
    expect(is_held(first), "the collective still runs");
    world->barrier();
  }
  comm.all_reduce(second).wait();
  comm.all_reduce(second).wait();  // gives back what is over
  expect(!is_held(first), "what is over is given back at a later call");
  same(first[0].item<float>(), 4.f, "the sum that the stream waited for");

  const uint32_t other = 1 - comm.rank();
  const at::Tensor out = at::full({300'000}, 1.0 + comm.rank()), in = at::zeros({300'000});
  comm.exchange({{other, out}}, {{other, in}}).wait();
  same(in[299'999].item<float>(), 1.f + other, "what the other rank sent");
  accelerator.api()->queue_destroy(accelerator.self(), std::exchange(stream, nullptr));
}
TEST(FakeComm, TensorsAreHeldUntilTheirCollectiveIsOver) {
  expect_all_succeed(run_ranks("holds", 2, {.environment = {{"COMM", "fake"}}}));
}

RANK_BODY(aborts_anything) {
  const auto world = join();
  RawGroup group{world->links().device()};
  gannet::Comm& comm = group.group.comm();
  if (group.rank() == 1) {
    group.barrier();
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    return;
  }
  group.barrier();
  for (const bool message : {true, false}) {
    std::vector<double> value(10, 1.0);
    Work work;
    try {
      work = message ? group.start(collective::receive(value.data(), 10, GANNET_FLOAT64, 1))
                     : group.all_reduce(value.data(), 10, GANNET_FLOAT64);
      std::thread aborting([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        comm.abort();
      });
      const auto joined = [&] { aborting.join(); };
      try {
        work.wait();
        joined();
      } catch (...) {
        joined();
        throw;
      }
      throw std::runtime_error("an aborted collective completed");
    } catch (const Error& error) {
      same(static_cast<int>(error.code()), static_cast<int>(ErrorCode::kPeerLost), error.what());
    }
  }
}
TEST_P(EveryComm, AnyThreadEndsWhatIsInFlight) { run("aborts_anything", 2); }

}  // namespace
