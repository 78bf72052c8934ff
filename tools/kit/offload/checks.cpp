#include "kit/offload/checks.h"

namespace gannet::kit {

std::vector<Check> offload_checks() {
  constexpr const char* kBytes = "a read gives the bytes that were written there last, and nothing else is written";
  return {
      {"alignment", "alignment_bytes is a power of two, the same each time, and enough",
       "say what buffers, offsets and sizes must be multiples of; 1 for any", 30, align},
      {"reads-back", kBytes, "mind short reads and writes, and the last part of a region", 120, read_back},
      {"zeros", "a region reads as zeros until it is written", "clear the memory, or the file", 30, begin_with_zeros},
      {"in-flight", "many reads and writes are in flight together and are waited for in any order",
       "a work of its own for each request", 120, be_in_flight_together},
      {"regions-apart", "no two regions share bytes, whatever their names",
       "a place of its own for each region, not for each name", 60, keep_regions_apart},
      {"names", "a region's name may be any text", "do not make a path or a format of it as it is", 30, take_any_name},
      {"address", "address is the region's bytes in memory, always the same, or null",
       "return null where the memory at the address is a copy", 30, tell_the_address},
      {"two-at-once", "two objects in two threads, of two ranks, do not disturb each other", "keep state in the object", 60,
       serve_two_objects},
      {"refusals", "a range outside of the region, and one that is not aligned, is refused with a sentence",
       "check before you move anything (gannet/sdk_offload.hpp does)", 30, refuse_ranges},
      {"no-room", "where there is no room, allocate, a write or its wait fails with a sentence, and the object still works",
       "look at what every call of the system returns", 60, fail_with_a_sentence},
      {"host-failures",
       "where the host's allocate or parallel_for fails, a call fails with a sentence or does its work otherwise",
       "look at what they return", 60, survive_host_failures},
      {"release-in-flight", "release and destroy wait for what is in flight", "wait before you give back the memory or the file",
       60, release_in_flight},
      {"leaves-nothing-in-use", "released regions give back all memory, files and mappings; destroy removes all files",
       "remove in release what allocate made", 120, leave_no_region},
  };
}

}  // namespace gannet::kit
