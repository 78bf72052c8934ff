// Where a check is at, in memory that its parent shares: what a crash or a hang leaves to be reported.
//
//   place().config = "3 ranks, pages of 64 elements";       // at the begin of a part of a check
//   const Calling call("update", step, "tensor 'odd'");     // around each call of the plugin
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace gannet::kit {

// Fixed in size: it lies in shared memory, and a signal handler reads it.
struct Place {
  char config[160];
  char call[48];     // the plugin's function that is running; "" between calls
  char detail[160];  // the tensors of the piece, the region, the collective
  uint64_t step;     // 0: none
  char fault[240];   // written by the handler of a bad access: "wrote to the gradient of ..."
};

// That of the calling thread. Until share_places() it is in memory of this process alone.
Place& place();
// The threads of a simulated run have places of their own: 0 is the check's, the others count from 1.
void use_place(size_t number);
void set_config(const std::string& text);
// What the next calls are about.
void set_detail(const std::string& text);

class Calling {
 public:
  Calling(const char* function, uint64_t step, const std::string& detail = "");
  ~Calling();
  Calling(const Calling&) = delete;
};

// "config: 2 ranks; in update, step 17, tensor 'odd'"
std::string text_of(const Place& place);

constexpr size_t kPlaces = 8;
// All of them, in memory that forks of this process share with it.
struct Places {
  Place all[kPlaces];
  int32_t faulting;  // whose fault it was, -1: none
};
Places* share_places();
void unshare_places(Places* places);
// In the child: its places are these from here on.
void take_places(Places* places);
// The number of the calling thread's place.
size_t place_number();
Places& places();

}  // namespace gannet::kit
