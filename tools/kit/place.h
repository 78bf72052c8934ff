// Records what a check is doing, in memory shared with its parent, to report a crash or a hang.
//
//   set_config("3 ranks, pages of 64 elements");              // at the start of a part of a check
//   const CallScope call("update", step, "tensor 'odd'");     // around each call of the plugin
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace gannet::kit {

// Fixed in size: it is in shared memory, and a signal handler reads it.
struct CheckPlace {
  char config[160];
  char call[48];     // the running plugin function; "" between calls
  char detail[160];  // the subject of the call: the tensors of a piece, a region, a collective
  uint64_t step;     // 0: none
  char fault[240];   // written by the handler of a bad access: "wrote to the gradient of ..."
};

// The place of the calling thread. Until take_places() it is in this process's private memory.
CheckPlace& place();
// Each thread of a simulated run has its own place: 0 is the check's, the others count from 1.
void use_place(size_t number);
void set_config(const std::string& text);
// Describes the subject of the next calls.
void set_detail(const std::string& text);

class CallScope {
 public:
  CallScope(const char* function, uint64_t step, const std::string& detail = "");
  ~CallScope();
  CallScope(const CallScope&) = delete;
};

// For example "3 ranks, pages of 64 elements, in update, step 17, tensor 'odd'".
std::string text_of(const CheckPlace& place);

constexpr size_t kPlaces = 8;
// All places, in memory shared with forks of this process.
struct CheckPlaces {
  CheckPlace all[kPlaces];
  int32_t faulting;  // index of the place that faulted, -1: none
};
CheckPlaces* share_places();
void unshare_places(CheckPlaces* places);
// In the child: uses these places from here on.
void take_places(CheckPlaces* places);
// The number of the calling thread's place.
size_t place_number();
CheckPlaces& places();

}  // namespace gannet::kit
