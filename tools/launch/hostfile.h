// A hostfile as in DeepSpeed: one machine on each line, with its number of slots.
//
//   worker-1 slots=4
//   worker-2 slots=4        # trailing text, such as max_slots=8, is ignored
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gannet::launch {

// Used if --hostfile is not given and this file exists: DeepSpeed's default.
inline constexpr const char* kDefaultHostfile = "/job/hostfile";
inline constexpr uint32_t kMostSlots = 4096;

// A slot is a place for one rank, and a device's number if the machine has devices.
struct Host {
  std::string name;
  std::vector<uint32_t> slots;
};

// The hosts in the order of the lines, which is the order of the ranks; `file` names the text in errors.
// Throws Error(kArgument) with the line's number.
std::vector<Host> parse_hostfile(const std::string& text, const std::string& file);
// Throws Error(kNotFound) as well.
std::vector<Host> read_hostfile(const std::string& file);

std::vector<uint32_t> slots_up_to(uint32_t count);                                    // 0, 1 ... count - 1
std::string text_of(const std::vector<uint32_t>& slots, const char* between = ", ");  // "0, 1"

}  // namespace gannet::launch
