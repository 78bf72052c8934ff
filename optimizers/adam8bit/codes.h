// AdamW8bit stores a moment in a byte: as a code per element and, per block of kBlock elements, the
// largest magnitude in fp32. Both moments together take 2 + 8/256 bytes per element.
//
//   first moment:   m = c |c| / 127^2 * largest,  c in [-127, 127]
//   second moment:  v = (c / 255)^4 * largest,    c in [0, 255]
//
// As fractions of `largest`, the coarsest step is 1.6% for both, and the finest 6e-5 and 2.4e-10.
//
// The powers give small numbers the fine steps that a linear code lacks, and take only a few vector
// instructions (Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization", use a table
// instead). A positive second moment never becomes 0, because it is a divisor.
#pragma once

#include <cstdint>

#include "optimizers/device/both.h"

namespace gannet::rules {

inline constexpr uint64_t kBlock = 256;
inline constexpr float kFirstCodes = 127, kSecondCodes = 255;

// The unit of a code's power, computed from the block's largest magnitude, and the inverse of that
// magnitude.
inline constexpr float kFirstPerCode = 1 / (kFirstCodes * kFirstCodes);
inline constexpr float kSecondPerCode = 1 / (kSecondCodes * kSecondCodes * kSecondCodes * kSecondCodes);
GANNET_BOTH float first_unit(float largest) { return largest * kFirstPerCode; }
GANNET_BOTH float second_unit(float largest) { return largest * kSecondPerCode; }
GANNET_BOTH float inverse_of(float largest) { return largest > 0 ? 1 / largest : 0; }

}  // namespace gannet::rules
