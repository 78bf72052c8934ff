// Included before the source of a CPU optimizer plugin that is compiled into this plugin, so that
// the source's descriptors become a table local to the translation unit, not an exported symbol.
// optimizers_end.h follows the source.
#include <gannet/sdk.hpp>

#undef GANNET_PLUGINS
#define GANNET_PLUGINS(provides_, tier_, ...)           \
  namespace {                                           \
  constexpr gannet_descriptor kOfCpu[] = {__VA_ARGS__}; \
  }
