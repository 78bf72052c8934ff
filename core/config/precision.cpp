#include "config/precision.h"

namespace gannet::config {

Precision precision_of(const Settings& settings, bool on_cpu) {
  Precision precision;
  if (settings.fp16.enabled) {
    precision.model = DType::kFloat16;
    precision.scales_loss = true;
  } else if (settings.bf16.enabled) {
    precision.model = DType::kBFloat16;
  } else if (settings.torch_autocast.enabled) {
    precision.autocast = settings.torch_autocast.dtype.value_or(on_cpu ? DType::kBFloat16 : DType::kFloat16);
    precision.scales_loss = *precision.autocast == DType::kFloat16;
  } else if (settings.amp.enabled && settings.amp.opt_level != "O0") {
    if (settings.amp.opt_level != "O1") precision.model = DType::kFloat16;
    if (settings.amp.opt_level != "O3") precision.autocast = DType::kFloat16;
    precision.scales_loss = settings.amp.opt_level != "O3";
  }
  precision.is_scale_dynamic = precision.scales_loss && settings.fp16.loss_scale == 0;
  return precision;
}

}  // namespace gannet::config
