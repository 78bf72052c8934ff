// More states than any optimizer has.
#include "bad.h"

static constexpr gannet_optimizer_api kApi = [] {
  auto api = gannet::sdk::detail::kOptimizerApi<bad::Good>;
  api.describe = [](void*, const gannet_optimizer_context*, gannet_optimizer_description* found, gannet_error*) -> int32_t {
    static constexpr gannet_state_spec kSpec = gannet::sdk::state("exp_avg");
    found->states = &kSpec;
    found->state_count = uint64_t{1} << 40;
    found->state_stride = sizeof(kSpec);
    return GANNET_OK;
  };
  return api;
}();
BAD_NOTE(bad::good_note());
BAD_TABLE([] {
  auto descriptor = bad::good_descriptor();
  descriptor.api = &kApi;
  return descriptor;
}())
