#include "launch/devices.h"

#include <gannet/error.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "base/format.h"
#include "base/text.h"
#include "launch/hostfile.h"

namespace gannet::launch {
namespace {

constexpr std::array<std::string_view, 3> kVariables = {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"};

// The devices that a variable lists, as CUDA reads it: up to the first entry that is -1 or empty.
struct ListedDevices {
  std::string variable;
  std::vector<std::string> devices;
};

std::optional<ListedDevices> listed_in(const std::vector<std::string>& environment) {
  for (const std::string_view variable : kVariables)
    for (const std::string& entry : environment) {
      if (entry.rfind(formatted("{}=", variable), 0) != 0) continue;
      ListedDevices listed{std::string(variable), {}};
      std::istringstream entries(entry.substr(variable.size() + 1));
      for (std::string device; std::getline(entries, device, ',');) {
        device.erase(0, std::min(device.find_first_not_of(' '), device.size()));
        if (device.empty() || device == "-1") break;
        listed.devices.push_back(device);
      }
      return listed;
    }
  return std::nullopt;
}

// The device files nvidia0, nvidia1 ...; not nvidiactl and nvidia-uvm.
uint32_t count_nvidia(const std::string& root) {
  uint32_t count = 0;
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator(root + "/dev", code)) {
    const std::string name = entry.path().filename().string();
    constexpr std::string_view kPrefix = "nvidia";
    if (name.size() > kPrefix.size() && name.rfind(kPrefix, 0) == 0 &&
        name.find_first_not_of("0123456789", kPrefix.size()) == std::string::npos)
      ++count;
  }
  return count;
}

// The nodes of AMD's driver that are GPUs: a CPU's gpu_id is 0.
uint32_t count_amd(const std::string& root) {
  uint32_t count = 0;
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator(root + "/sys/class/kfd/kfd/topology/nodes", code)) {
    uint64_t id = 0;
    if (std::ifstream(entry.path() / "gpu_id") >> id && id != 0) ++count;
  }
  return count;
}

}  // namespace

bool chooses_devices(const std::string& name) {
  return std::find(kVariables.begin(), kVariables.end(), name) != kVariables.end();
}

uint32_t count_devices(const std::vector<std::string>& environment, const std::string& root) {
  const uint32_t here = count_nvidia(root) + count_amd(root);
  const auto listed = listed_in(environment);
  // On a machine without devices, the variable's entries do not count.
  return listed && here ? std::min(here, static_cast<uint32_t>(listed->devices.size())) : here;
}

std::string visible_devices(const std::vector<uint32_t>& slots, const std::vector<std::string>& environment,
                            const std::string& root) {
  const auto listed = listed_in(environment);
  if (listed && listed->devices.empty()) return listed->variable + "=";  // all are hidden, to train on the CPU
  const uint32_t here = count_nvidia(root) + count_amd(root);
  const size_t most = listed ? listed->devices.size() : here ? here : kMostSlots;
  std::vector<std::string> devices;
  for (const uint32_t slot : slots) {
    if (slot >= most)
      throw Error(ErrorCode::kArgument,
                  listed ? formatted("slot {}, and {} shows {} device{}", slot, listed->variable, most, most == 1 ? "" : "s")
                         : formatted("slot {}, and this machine has {} device{}", slot, most, most == 1 ? "" : "s"),
                  formatted("the slots here are {}{}", text_of(slots_up_to(static_cast<uint32_t>(most))),
                            listed ? formatted("; unset {} for all devices", listed->variable) : ""));
    devices.push_back(listed ? listed->devices[slot] : std::to_string(slot));
  }
  return formatted("{}={}", listed ? listed->variable : std::string(kVariables[0]), join(devices, ","));
}

}  // namespace gannet::launch
