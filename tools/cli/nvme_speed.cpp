#include "cli/nvme_speed.h"

#include <gannet/error.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <random>

#include "base/format.h"
#include "interfaces/offload.h"

namespace gannet::cli {
namespace {

constexpr uint64_t kRequestBytes = 64u << 20;

// A page-aligned buffer in huge pages, like the engine's; its contents are random, since some
// drives compress.
class Buffer {
 public:
  explicit Buffer(uint64_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) throw Error(ErrorCode::kOutOfMemory, formatted("no memory for a buffer of {} bytes", bytes));
    madvise(data_, bytes, MADV_HUGEPAGE);
    std::mt19937_64 random(bytes);
    std::generate_n(static_cast<uint64_t*>(data_), bytes / sizeof(uint64_t), std::ref(random));
  }
  ~Buffer() { munmap(data_, bytes_); }
  Buffer(const Buffer&) = delete;
  void* data() const { return data_; }

 private:
  uint64_t bytes_;
  void* data_;
};

double cpu_ms() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto ms = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_usec) / 1e3;
  };
  return ms(used.ru_utime) + ms(used.ru_stime);
}

struct PassSpeed {
  double gb_s, cpu_ms_per_gib;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

template <class Start>
PassSpeed time_pass(Offload& offload, uint64_t bytes, uint64_t request, Start&& start) {
  const double cpu_before = cpu_ms();
  const auto began = std::chrono::steady_clock::now();
  std::array<void*, 2> works{};
  uint64_t number = 0;
  for (uint64_t offset = 0; offset < bytes; offset += request, ++number) {
    void*& work = works[number % 2];
    if (work) offload.wait(work);
    work = start(number % 2, offset, std::min(request, bytes - offset));
  }
  for (uint64_t i = 0; i < 2; ++i)
    if (void* work = works[(number + i) % 2]) offload.wait(work);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  const auto size = static_cast<double>(bytes);
  return {size / seconds / 1e9, (cpu_ms() - cpu_before) / (size / (1u << 30))};
}

}  // namespace

Dict NvmePoint::aio() const {
  return {{"block_size", static_cast<int64_t>(block_size)},
          {"queue_depth", queue_depth},
          {"intra_op_parallelism", parallelism},
          {"single_submit", false},
          {"overlap_events", true}};
}

NvmeSpeed measure_nvme(const plugin::Plugin& plugin, const Host& host, const NvmeRun& run, const NvmePoint& point) {
  Dict params = point.aio();
  std::error_code failed;  // on failure the plugin reports what is wrong with the folder as written
  const std::filesystem::path whole = std::filesystem::absolute(run.folder, failed);
  params["nvme_path"] = failed ? run.folder : whole.lexically_normal().string();
  params["checksum"] = run.checksum;
  Offload offload(plugin, plugin::parse_params(plugin, params, [](const std::string&) { return "gannet bench nvme"; }), host, 0);

  const uint64_t request = std::max(std::min(kRequestBytes, run.bytes) / point.block_size, uint64_t{1}) * point.block_size;
  const uint64_t bytes = run.bytes / point.block_size * point.block_size;
  const std::array<Buffer, 2> buffers{Buffer(request), Buffer(request)};
  void* region = offload.allocate(bytes, "bench");
  const auto write = [&](uint64_t which, uint64_t offset, uint64_t count) {
    return offload.write(region, offset, buffers[which].data(), count);
  };
  const auto read = [&](uint64_t which, uint64_t offset, uint64_t count) {
    return offload.read(region, offset, buffers[which].data(), count);
  };

  time_pass(offload, bytes, request, write);
  std::vector<double> write_speed, read_speed, write_cpu, read_cpu;
  for (int round = 0; round < run.rounds; ++round) {
    const PassSpeed written = time_pass(offload, bytes, request, write), got = time_pass(offload, bytes, request, read);
    write_speed.push_back(written.gb_s);
    write_cpu.push_back(written.cpu_ms_per_gib);
    read_speed.push_back(got.gb_s);
    read_cpu.push_back(got.cpu_ms_per_gib);
  }
  offload.release(region);
  return {point, median(write_speed), median(read_speed), median(write_cpu), median(read_cpu)};
}

const NvmeSpeed& best_of(const std::vector<NvmeSpeed>& speeds) {
  const auto both = [](const NvmeSpeed& speed) { return speed.write_gb_s + speed.read_gb_s; };
  const double fastest =
      both(*std::max_element(speeds.begin(), speeds.end(), [&](auto& a, auto& b) { return both(a) < both(b); }));
  const NvmeSpeed* best = nullptr;
  for (const NvmeSpeed& speed : speeds)
    if (both(speed) >= 0.97 * fastest && (!best || speed.point.bytes_in_flight() < best->point.bytes_in_flight())) best = &speed;
  return *best;
}

}  // namespace gannet::cli
