// A capability of 2.3 without its function.
#include "bad.h"

static constexpr gannet_optimizer_api kApi = [] {
  auto api = gannet::sdk::detail::kOptimizerApi<bad::Good>;
  api.update_many = nullptr;
  api.describe = [](void*, const gannet_optimizer_context*, gannet_optimizer_description* found, gannet_error*) -> int32_t {
    found->capabilities = GANNET_OPTIMIZER_ELEMENTWISE | GANNET_OPTIMIZER_TAKES_LISTS;
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
