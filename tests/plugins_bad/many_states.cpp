// More states than any optimizer has.
#include "bad.h"

static constexpr gannet_optimizer_api kApi = [] {
  auto api = gannet::sdk::detail::kOptimizerApi<bad::Good>;
  api.state_specs = [](void*, gannet_state_specs* specs, gannet_error*) -> int32_t {
    static constexpr gannet_state_spec kSpec = gannet::sdk::state("exp_avg");
    *specs = {sizeof(*specs), 0, &kSpec, uint64_t{1} << 40, sizeof(kSpec)};
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
