// A parameter with a flag that this host does not know.
#include "bad.h"

static constexpr gannet_param_spec kParams[] = {[] {
  auto spec = gannet::sdk::learning_rate("1e-3");
  spec.flags |= 1u << 20;
  return spec;
}()};
BAD_NOTE(bad::good_note());
BAD_TABLE([] {
  auto descriptor = bad::good_descriptor();
  descriptor.params = kParams;
  return descriptor;
}())
