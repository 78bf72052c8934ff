#include "tensor/autocast.h"

#include <ATen/autocast_mode.h>

namespace gannet {

Autocast::Autocast(at::DeviceType device, at::ScalarType dtype, bool caches_casts)
    : device_(device),
      was_enabled_(at::autocast::is_autocast_enabled(device)),
      cached_casts_(at::autocast::is_autocast_cache_enabled()),
      dtype_before_(at::autocast::get_autocast_dtype(device)) {
  at::autocast::set_autocast_enabled(device, true);
  at::autocast::set_autocast_dtype(device, dtype);
  at::autocast::set_autocast_cache_enabled(caches_casts);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, dtype_before_);
  at::autocast::set_autocast_cache_enabled(cached_casts_);
}

}  // namespace gannet
