// Before the source of a CPU optimizer plugin that is compiled into this one: its descriptors become a table of the unit, in
// place of the symbol that a plugin exports. optimizers_end.h follows it.
#include <gannet/sdk.hpp>

#undef GANNET_PLUGINS
#define GANNET_PLUGINS(provides_, tier_, ...)           \
  namespace {                                           \
  constexpr gannet_descriptor kOfCpu[] = {__VA_ARGS__}; \
  }
