// A capability of 2.3 of an optimizer that averages gradients itself.
#include "bad.h"

static constexpr gannet_optimizer_api kApi = [] {
  auto api = gannet::sdk::detail::kOptimizerApi<bad::Good>;
  api.reduces_gradients = [](void*, uint64_t, uint32_t*, gannet_error*) -> int32_t { return GANNET_OK; };
  api.describe = [](void*, const gannet_optimizer_context*, gannet_optimizer_description* found, gannet_error*) -> int32_t {
    found->capabilities = GANNET_OPTIMIZER_ELEMENTWISE | GANNET_OPTIMIZER_TAKES_LISTS | GANNET_OPTIMIZER_OWNS_GRAD_REDUCTION;
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
