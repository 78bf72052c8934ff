#include "kit/place.h"

#include <gannet/error.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/format.h"
#include "base/text.h"

namespace gannet::kit {
namespace {

CheckPlaces own_places{};
CheckPlaces* current = &own_places;
thread_local size_t number = 0;

template <size_t size>
void put(char (&into)[size], const std::string& text) {
  const size_t length = std::min(size - 1, text.size());
  std::memcpy(into, text.data(), length);
  into[length] = 0;
}

}  // namespace

CheckPlaces* share_places() {
  void* memory = ::mmap(nullptr, sizeof(CheckPlaces), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw Error(ErrorCode::kOutOfMemory, "no memory to share with a child process");
  auto* places = static_cast<CheckPlaces*>(memory);
  places->faulting = -1;
  return places;
}

void unshare_places(CheckPlaces* places) { ::munmap(places, sizeof(CheckPlaces)); }
void take_places(CheckPlaces* places) { current = places; }
CheckPlaces& places() { return *current; }
CheckPlace& place() { return current->all[number]; }
size_t place_number() { return number; }
void use_place(size_t which) { number = std::min(which, kPlaces - 1); }
void set_config(const std::string& text) { put(place().config, text); }
void set_detail(const std::string& text) { put(place().detail, text); }

CallScope::CallScope(const char* function, uint64_t step, const std::string& detail) {
  put(place().detail, detail);
  place().step = step;
  put(place().call, function);
}
// The other fields stay: a failure found right after a call belongs to that call.
CallScope::~CallScope() { place().call[0] = 0; }

std::string text_of(const CheckPlace& place) {
  std::vector<std::string> parts;
  if (*place.config) parts.push_back(place.config);
  if (*place.call) parts.push_back(formatted("in {}", place.call));
  if (place.step > 0) parts.push_back(formatted("step {}", place.step));
  if (*place.detail) parts.push_back(place.detail);
  return printable(join(parts, ", "));
}

}  // namespace gannet::kit
