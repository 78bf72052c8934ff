// The number types and the loss scaling of a run, as the sections fp16, bf16, torch_autocast and
// amp together define them.
//
//   const Precision precision = precision_of(settings, /*on_cpu=*/true);
//   if (precision.autocast) ...                          // forward runs under LibTorch's autocast, in this type
//   if (precision.scales_loss) ...                       // the fp16 scaler does it, whichever section asks for it
//
// The levels of amp (opt_level): O0 changes nothing; O1 is autocast in fp16 with a loss scale; O2
// is autocast with parameters in fp16, fp32 masters and a loss scale; O3 is parameters in fp16
// without a loss scale (masters stay in fp32; apex's O3 has none).
#pragma once

#include <optional>

#include "config/settings.h"

namespace gannet::config {

struct Precision {
  std::optional<DType> model;     // parameters are cast to it; null: they keep the program's type
  std::optional<DType> autocast;  // null: forward runs as the program wrote it, without autocast
  bool scales_loss = false;       // gradients may leave fp16's range, so the loss is scaled and steps that overflow are skipped
  bool is_scale_dynamic = false;
};

/// `on_cpu`: whether operators run on the CPU. It sets torch_autocast's type if none is given: bf16
/// on a CPU, else fp16, as in PyTorch.
Precision precision_of(const Settings& settings, bool on_cpu);

}  // namespace gannet::config
