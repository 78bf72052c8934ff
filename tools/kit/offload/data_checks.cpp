// Checks that reads return what was written: sizes, places, orders, regions, objects.
#include <algorithm>
#include <barrier>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <numeric>
#include <thread>

#include "base/format.h"
#include "kit/numbers.h"
#include "kit/offload/checks.h"
#include "kit/offload/tier.h"
#include "kit/process_check.h"

namespace gannet::kit {
namespace {

constexpr uint64_t kMany = uint64_t{33} << 20;  // larger than blocks, queues and caches

// A model of a region: its expected bytes.
struct RegionModel {
  RegionModel(Tier& tier, uint64_t bytes, const std::string& name)
      : region(tier.allocate(bytes, name)), expected(tier.bytes(tier.rounded(bytes), 0)) {}
  void write(Tier& tier, uint64_t offset, uint64_t count, uint64_t seed) {
    const GuardedBytes part = tier.bytes(count, seed);
    if (count > 0) std::memcpy(expected.data() + offset, part.data(), count);
    tier.write(region, offset, part);
    require_same(part, tier.bytes(count, seed), "the buffer that was written from");
  }
  void require(Tier& tier, const std::string& what) { require_same(tier.read(region, 0, expected.size()), expected, what); }
  void* region;
  GuardedBytes expected;
};

void in_threads(const std::vector<std::function<void()>>& bodies) {
  std::exception_ptr first;
  std::mutex mutex;
  std::vector<std::thread> threads;
  const CheckPlace given = place();
  for (size_t i = 0; i < bodies.size(); ++i)
    threads.emplace_back([&, i] {
      use_place(i + 1);
      place() = given;
      try {
        bodies[i]();
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
    });
  for (auto& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace

void use_offload(Subject& subject) {
  Tier tier(subject, 0);
  for (const uint64_t size : {uint64_t{100}, uint64_t{3} << 20}) {
    const GuardedBytes bytes = tier.bytes(tier.rounded(size), 5);
    void* const region = tier.allocate(bytes.size(), "a region");
    tier.address(region);
    tier.write(region, 0, bytes);
    require_same(tier.read(region, 0, bytes.size()), bytes, "what was written");
    tier.release(region);
  }
  tier.destroy();
}

void align(Subject& subject) {
  Tier tier(subject, 0);
  const uint64_t again = tier.api().alignment_bytes(tier.self());
  if (again != tier.alignment())
    throw CheckFailure(formatted("alignment_bytes is {}, and then {}", tier.alignment(), again), "alignment_bytes");
  // Use exactly the alignment: a buffer at the smallest multiple, an offset and a size of one
  // alignment.
  set_config(formatted("alignment {}", tier.alignment()));
  RegionModel model(tier, 8 * tier.alignment(), "aligned");
  for (uint64_t i = 0; i < 8; ++i) model.write(tier, i * tier.alignment(), tier.alignment(), i);
  model.require(tier, "eight parts of one alignment");
}

void read_back(Subject& subject) {
  Tier tier(subject, 0);
  const uint64_t a = tier.alignment();
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, a, 3 * a, 1000 + a, uint64_t{20'487}, (uint64_t{5} << 20) + a, kMany}) {
    set_config(formatted("a region of {} bytes", bytes));
    RegionModel model(tier, bytes, "data");
    const uint64_t whole = model.expected.size();
    model.write(tier, 0, whole, bytes);
    model.require(tier, "the whole region");
    uint64_t seed = 1;
    for (const auto& [offset, count] : std::vector<std::pair<uint64_t, uint64_t>>{
             {0, a}, {whole / a / 2 * a, a}, {whole - std::min(whole, a), std::min(whole, a)}, {a, 5 * a}, {whole, 0}, {0, 0}}) {
      if (offset > whole || count > whole - offset) continue;
      model.write(tier, offset, count, ++seed);
      require_same(tier.read(model.region, offset, count), tier.bytes(count, seed), "a part");
    }
    model.require(tier, "the whole region, of which parts were written again");
    tier.release(model.region);
  }
}

void begin_with_zeros(Subject& subject) {
  Tier tier(subject, 0);
  const uint64_t bytes = tier.rounded(300'000);
  for (int round = 0; round < 3; ++round) {  // later rounds may get the memory of an earlier region
    void* region = tier.allocate(bytes, "zeros");
    if (!tier.read(region, 0, bytes).is_zero())
      throw CheckFailure("a region that was never written holds other bytes than zeros", text_of(place()));
    tier.write(region, 0, tier.bytes(bytes, 7));
    tier.release(region);
  }
}

void be_in_flight_together(Subject& subject) {
  Tier tier(subject, 0);
  constexpr uint64_t kParts = 60;
  const uint64_t part = tier.rounded(150'001);
  void* region = tier.allocate(kParts * part, "parts");
  std::vector<GuardedBytes> written, got;
  for (uint64_t i = 0; i < kParts; ++i) written.push_back(tier.bytes(part, i));
  std::vector<uint64_t> order(kParts);
  std::iota(order.begin(), order.end(), 0);
  const auto shuffle = [&](uint64_t seed) {
    for (uint64_t i = kParts - 1; i > 0; --i) std::swap(order[i], order[mixed(seed, i) % (i + 1)]);
  };
  for (uint64_t round = 0; round < 4; ++round) {
    set_config(formatted("{} works of {} bytes in flight", kParts, part));
    std::vector<void*> works;
    for (uint64_t i = 0; i < kParts; ++i) {
      written[i].fill(100 * round + i);
      works.push_back(tier.start_write(region, i * part, written[i]));
    }
    shuffle(round);
    for (const uint64_t i : order) tier.wait(works[i]);
    // Odd parts are read while even ones are overwritten.
    got.clear();
    for (uint64_t i = 0; i < kParts; ++i) {
      got.push_back(tier.bytes(part, 100 * round + i + 50));
      works[i] = i % 2 ? tier.start_read(region, i * part, got[i]) : tier.start_write(region, i * part, got[i]);
    }
    shuffle(round + 10);
    for (const uint64_t i : order) tier.wait(works[i]);
    for (uint64_t i = 0; i < kParts; ++i) {
      if (i % 2) require_same(got[i], written[i], formatted("part {}", i));
      if (i % 2 == 0) require_same(tier.read(region, i * part, part), got[i], formatted("part {}", i));
    }
  }
  // The host waits for a write before it reads the same bytes; the data must then be there.
  for (uint64_t i = 0; i < 50; ++i) {
    written[0].fill(i);
    tier.write(region, 0, written[0]);
    require_same(tier.read(region, 0, part), written[0], "a write that was waited for");
  }
}

void keep_regions_apart(Subject& subject) {
  Tier tier(subject, 0);
  std::vector<RegionModel> models;
  for (uint64_t i = 0; i < 24; ++i) {
    models.emplace_back(tier, (i % 5) * 4096 + i * tier.alignment() + 1, i % 3 ? "same" : formatted("region {}", i));
    models.back().write(tier, 0, models.back().expected.size(), i);
  }
  for (size_t i = 0; i < models.size(); i += 2) tier.release(models[i].region);
  for (size_t i = 1; i < models.size(); i += 2)
    models[i].require(tier, formatted("region {} of 24, of which 12 are released", i));
}

void take_any_name(Subject& subject) {
  const auto before = files_of(subject);
  Tier tier(subject, 0);
  std::vector<RegionModel> models;
  for (const std::string& name :
       {std::string(""), std::string("a/b"), std::string("../../outside"), std::string("/absolute"), std::string("."),
        std::string("%s%n%p"), std::string("two words\nand a line"), std::string("*?'\"\\$(touch x)"),
        std::string("\xc3\xbc\xe2\x82\xac"), std::string("\x01\xff"), std::string(5000, 'n')}) {
    models.emplace_back(tier, 4096, name);
    models.back().write(tier, 0, models.back().expected.size(), models.size());
  }
  for (RegionModel& model : models) model.require(tier, "a region with an odd name");
  for (RegionModel& model : models) tier.release(model.region);
  tier.destroy();
  if (const auto now = files_of(subject); now.size() > before.size())
    throw CheckFailure(formatted("{} files are left behind", now.size() - before.size()), "regions with odd names", "none");
}

void tell_the_address(Subject& subject) {
  Tier tier(subject, 0);
  for (const uint64_t wanted : {uint64_t{1}, uint64_t{5000}, uint64_t{3} << 20}) {
    RegionModel model(tier, wanted, "addressed");
    const uint64_t bytes = model.expected.size();
    auto* address = static_cast<char*>(tier.address(model.region));
    if (!address) throw SkippedCheck("it has no address");
    if (reinterpret_cast<uintptr_t>(address) % 64 != 0)
      throw CheckFailure("the address is not a multiple of 64, as the arrays of an update must be", text_of(place()));
    model.write(tier, 0, bytes, 1);
    if (std::memcmp(address, model.expected.data(), bytes) != 0)
      throw CheckFailure("what was written is not at the address", text_of(place()));
    model.expected.fill(2);
    std::memcpy(address, model.expected.data(), bytes);
    model.require(tier, "what was put at the address");
    if (tier.address(model.region) != address) throw CheckFailure("the address has changed", text_of(place()));
  }
}

void serve_two_objects_of(Subject& subject, uint32_t ranks) {
  std::barrier both(2);  // in every other round, both threads must have written before either of them reads
  const auto rounds = [&](uint32_t rank) {
    Tier tier(subject, rank % ranks);
    for (uint64_t round = 0; round < 15; ++round) {
      set_config(formatted("object {} of 2, of rank {}, round {}", rank, rank % ranks, round));
      RegionModel one(tier, 200'000, "same name"), two(tier, 70'000, "same name");
      one.write(tier, 0, one.expected.size(), rank * 1000 + round);
      two.write(tier, 0, two.expected.size(), rank * 1000 + round + 500);
      if (round % 2 == 0) both.arrive_and_wait();
      one.require(tier, "what this object wrote");
      two.require(tier, "what this object wrote");
      tier.release(one.region);
      tier.release(two.region);
    }
  };
  const auto use = [&](uint32_t rank) {
    try {
      rounds(rank);
    } catch (...) {
      both.arrive_and_drop();  // so that the other thread does not wait for this one
      throw;
    }
  };
  in_threads({[&] { use(0); }, [&] { use(1); }});
}

// Two ranks of a machine, and the two objects of a rank that keeps states and parameters on a tier.
void serve_two_objects(Subject& subject) {
  serve_two_objects_of(subject, 2);
  serve_two_objects_of(subject, 1);
}

}  // namespace gannet::kit
