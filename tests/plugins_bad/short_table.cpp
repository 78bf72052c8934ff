// A function table shorter than the frozen one.
#include "bad.h"

static constexpr gannet_optimizer_api kApi = [] {
  auto api = gannet::sdk::detail::kOptimizerApi<bad::Good>;
  api.struct_size = 40;
  return api;
}();
BAD_NOTE(bad::good_note());
BAD_TABLE([] {
  auto descriptor = bad::good_descriptor();
  descriptor.api = &kApi;
  return descriptor;
}())
