// A status that the contract does not have, without a sentence; and a version, which the blame must name.
#include "bad.h"

static constexpr gannet_optimizer_api kApi = [] {
  auto api = gannet::sdk::detail::kOptimizerApi<bad::Good>;
  api.create = [](const gannet_host*, const gannet_params*, void**, gannet_error*) -> int32_t { return 77; };
  return api;
}();
BAD_NOTE(bad::good_note());
BAD_TABLE([] {
  auto descriptor = bad::good_descriptor();
  descriptor.api = &kApi;
  descriptor.version = "2.7-rc1";
  return descriptor;
}())
