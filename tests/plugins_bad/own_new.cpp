// With an operator new of its own, which the C++ library that allocates for it does not know.
#include <cstdlib>
#include <new>

#include "bad.h"

void* operator new(std::size_t bytes) { return std::malloc(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

GANNET_PLUGINS("optimizer/own_new@cpu", GANNET_TIER_STABLE, bad::good_descriptor())
