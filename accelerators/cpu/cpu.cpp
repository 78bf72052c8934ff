// The CPU accelerator: one device without streams, and memory as reported by the kernel.
#include <algorithm>
#include <fstream>
#include <gannet/sdk_accelerator.hpp>
#include <limits>

namespace {

// Returns, in bytes, the value of the key's line, such as "MemTotal:  16384 kB"; 0 if the kernel does
// not report the key.
uint64_t meminfo_bytes(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  uint64_t kilobytes = 0;
  while (file >> name >> kilobytes) {
    std::getline(file, unit);
    if (name == key + ":") return kilobytes * 1024;
  }
  return 0;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

struct Cpu : gannet::sdk::AcceleratorBase {
  static constexpr std::array<gannet_param_spec, 0> kParams{};
  static constexpr int32_t kPriority = GANNET_PRIORITY_HOST;
  using AcceleratorBase::AcceleratorBase;

  uint64_t capabilities() const { return GANNET_ACCELERATOR_FP16 | GANNET_ACCELERATOR_BF16; }
  uint32_t device_count() const { return 1; }
  void device_info(uint32_t, gannet_device_info& info) const {
    info.torch_device_type = 0;  // c10::DeviceType::CPU
    info.memory_bytes = meminfo_bytes("MemTotal");
    info.free_bytes = meminfo_bytes("MemAvailable");
    const std::string name = processor_name();
    const size_t length = std::min(name.size(), sizeof(info.name) - 1);
    name.copy(info.name, length);
    info.name[length] = 0;
  }
};

}  // namespace

GANNET_PLUGINS("accelerator/cpu", GANNET_TIER_STABLE,
               gannet::sdk::accelerator<Cpu>("cpu", GANNET_TIER_STABLE, "", "1.0.0", "the host's processor and memory"))
